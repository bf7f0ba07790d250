package course

// A lookupCache finds sequences by id that are not among the first nodes of a list. Each core has one.
//
// An entry has a sequence and the neighbours that the sequence had when it was linked or found. The entry holds
// if it agrees with the visible memory: the sequence has the id, and the sequence and its two neighbours are
// linked to each other. An entry that does not hold is not used. This check fails for a node that an outside
// writer renames, unlinks, or links in elsewhere, even into another engine's list. llm_memory.h says what the
// check cannot detect.
//
// The check reads three sequences, none of which may have been freed. The index knows which entries name a
// sequence (index.go).
type lookupCache struct {
	core    uint64 // number of the core
	entries table[entry]
	epoch   uint32 // the index's epoch when the entries were added
	index   *index
}

type entry struct {
	engine     *Engine
	seq        *Sequence
	prev, next *Node
	id         int32
}

func (h entry) empty() bool       { return h.seq == nil }
func (h entry) same(o entry) bool { return h.engine == o.engine && h.id == o.id }
func (h entry) hash() uint64      { return hashID(h.engine, h.id) }

// hashID multiplies by an odd constant, which moves consecutive ids far apart.
func hashID(e *Engine, id int32) uint64 {
	return (uint64(uint32(id)) ^ address(e)<<17) * 0x9e3779b97f4a7c15
}

func (h *entry) holds() bool {
	n := &h.seq.Node
	return h.seq.ID == h.id && n.Prev == h.prev && n.Next == h.next && h.prev.Next == n && h.next.Prev == n
}

// lookup returns the sequence with the id if there is an entry for the id and the entry holds. It removes an
// entry that does not hold.
func (c *lookupCache) lookup(e *Engine, id int32) *Sequence {
	slots := c.entries.slots
	if len(slots) == 0 {
		return nil
	}
	if c.epoch != c.index.epoch.Load() {
		return nil
	}
	for i := hashID(e, id) >> c.entries.shift; ; i++ {
		h := &slots[i&uint64(len(slots)-1)]
		if h.seq == nil {
			return nil
		}
		if h.id == id && h.engine == e {
			if h.holds() {
				return h.seq
			}
			c.index.mu.Lock()
			c.remove(h)
			c.index.mu.Unlock()
			return nil
		}
	}
}

// insert adds h and replaces the entry of its sequence, if there is one. There must be no
// entry for its id.
func (c *lookupCache) insert(h entry) {
	c.index.mu.Lock()
	defer c.index.mu.Unlock()
	c.put(h)
}

// insertLast adds an entry for s, which has just been linked after last.
func (c *lookupCache) insertLast(e *Engine, s *Sequence, last *Node) {
	c.index.mu.Lock()
	defer c.index.mu.Unlock()
	if h := c.entryOf(e, last); h != nil && h.next == &e.Active {
		c.renext(h, &s.Node)
	}
	c.put(entry{engine: e, id: s.ID, seq: s, prev: last, next: &e.Active})
}

// unlinking also updates the entries of the two neighbours of s, which become neighbours.
func (c *lookupCache) unlinking(e *Engine, s *Sequence) {
	if !c.index.any() {
		return
	}
	c.index.mu.Lock()
	defer c.index.mu.Unlock()
	c.removeOf(s)
	// Prev and Next may point at something that is no sequence. They are compared, and never dereferenced.
	prev, next := s.Node.Prev, s.Node.Next
	if h := c.entryOf(e, prev); h != nil && h.next == &s.Node {
		c.renext(h, next)
	}
	if h := c.entryOf(e, next); h != nil && h.prev == &s.Node {
		c.reprev(h, prev)
	}
	c.giveUp(s)
}

// invalidate is called before s is freed together with its engine. The entries of the engine have already been
// removed.
func (c *lookupCache) invalidate(s *Sequence) {
	if !c.index.any() {
		return
	}
	c.index.mu.Lock()
	defer c.index.mu.Unlock()
	c.giveUp(s)
}

// removeEngine removes every entry of e, because another engine may soon have e's address.
func (c *lookupCache) removeEngine(e *Engine) {
	if !c.index.any() {
		return
	}
	c.index.mu.Lock()
	defer c.index.mu.Unlock()
	for i := 0; i < len(c.entries.slots); {
		if h := &c.entries.slots[i]; !h.empty() && h.engine == e {
			c.remove(h) // may move a later entry into this slot
		} else {
			i++
		}
	}
}

// The methods below are called with the index locked.

// giveUp resets the index if an entry still names s.
func (c *lookupCache) giveUp(s *Sequence) {
	if c.index.names(s) {
		c.index.reset()
	}
}

// entryOf returns the entry of the sequence that n is part of, or nil if it has none for e.
func (c *lookupCache) entryOf(e *Engine, n *Node) *entry {
	if n == &e.Active {
		return nil
	}
	engine, id, ok := c.index.keyOf(sequenceOf(n))
	if !ok || engine != e {
		return nil
	}
	return c.entries.get(entry{engine: e, id: id})
}

// renext and reprev change one neighbour in an entry. If there is no memory for that, the
// entry keeps the old neighbour and no longer holds.
func (c *lookupCache) renext(h *entry, next *Node) {
	if c.index.mention(h.engine, next, +1) {
		c.index.mention(h.engine, h.next, -1)
		h.next = next
	}
}

func (c *lookupCache) reprev(h *entry, prev *Node) {
	if c.index.mention(h.engine, prev, +1) {
		c.index.mention(h.engine, h.prev, -1)
		h.prev = prev
	}
}

// put adds h. There must be no entry for its id. put also drops the entries that are older than the last reset,
// so the index never has one.
func (c *lookupCache) put(h entry) {
	c.removeOf(h.seq)
	if epoch := c.index.epoch.Load(); c.epoch != epoch {
		c.entries.clear()
		c.epoch = epoch
	}
	if c.entries.add(h) != nil {
		c.index.add(&h)
	}
}

func (c *lookupCache) remove(h *entry) {
	if c.epoch == c.index.epoch.Load() {
		c.index.remove(h)
	}
	c.entries.remove(*h)
}

// removeOf removes the entry of s, if there is one. An entry in another core's cache cannot be changed from
// here; removeOf then resets the index.
func (c *lookupCache) removeOf(s *Sequence) {
	e, id, ok := c.index.keyOf(s)
	if !ok {
		return
	}
	if coreOf(e) != c.core {
		c.index.reset()
		return
	}
	if h := c.entries.get(entry{engine: e, id: id}); h != nil {
		c.remove(h)
	}
}
