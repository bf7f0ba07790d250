package course

// A lookupCache finds sequences by id. It adds no entry for a sequence among the first nodes of a list. Each core has a
// cache.
//
// An entry has a sequence and the neighbours that the sequence had when it was linked or found. If a call of the
// library changes a neighbour, it also changes the entry. The entry is valid if it agrees with the visible memory: the
// sequence has the id, and the sequence and its two neighbours are linked to each other. An invalid entry is not used.
// An entry is invalid after an outside writer renames the node, unlinks it, or links it elsewhere, even into another
// engine's list. llm_memory.h says which writes this check cannot detect.
//
// The check reads the sequence and its neighbours. To prevent it from reading freed memory, all entries that refer to a
// sequence are removed, or become outdated, before the sequence is freed. The index finds these entries (index.go).
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

func (h entry) empty() bool          { return h.seq == nil }
func (h entry) sameKey(o entry) bool { return h.engine == o.engine && h.id == o.id }
func (h entry) hash() uint64         { return hashID(h.engine, h.id) }

// hashID multiplies by an odd constant, so that the hashes of consecutive ids are far apart.
func hashID(e *Engine, id int32) uint64 {
	return (uint64(uint32(id)) ^ address(e)<<17) * 0x9e3779b97f4a7c15
}

func (h *entry) valid() bool {
	n := &h.seq.Node
	return h.seq.ID == h.id && n.Prev == h.prev && n.Next == h.next && h.prev.Next == n && h.next.Prev == n
}

// lookup returns the sequence of the valid entry for an id, or nil if there is no such entry. It removes an entry that
// is not valid.
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
			if h.valid() {
				return h.seq
			}
			c.index.mu.Lock()
			c.remove(h)
			c.index.mu.Unlock()
			return nil
		}
	}
}

// forget removes the entry for an id that is not in the list. Its sequence was unlinked by hand, and may be freed by hand
// from now on (llm_memory.h).
func (c *lookupCache) forget(e *Engine, id int32) {
	if len(c.entries.slots) == 0 || c.epoch != c.index.epoch.Load() {
		return
	}
	if h := c.entries.get(entry{engine: e, id: id}); h != nil {
		c.index.mu.Lock()
		c.remove(h)
		c.index.mu.Unlock()
	}
}

// insert adds h and removes any other entry of h's sequence. The cache must have no entry for h's id.
func (c *lookupCache) insert(h entry) {
	c.index.mu.Lock()
	defer c.index.mu.Unlock()
	c.put(h)
}

// insertLast adds an entry for s, which has just been linked behind last at the end of the list.
func (c *lookupCache) insertLast(e *Engine, s *Sequence, last *Node) {
	c.index.mu.Lock()
	defer c.index.mu.Unlock()
	if h := c.entryOf(e, last); h != nil && h.next == &e.Active {
		c.renext(h, &s.Node)
	}
	c.put(entry{engine: e, id: s.ID, seq: s, prev: last, next: &e.Active})
}

// unlinking must be called before s is unlinked and freed. It removes the entry of s. It also updates the entries of
// the two neighbours of s, which become neighbours of each other.
func (c *lookupCache) unlinking(e *Engine, s *Sequence) {
	if !c.index.nonEmpty() {
		return
	}
	c.index.mu.Lock()
	defer c.index.mu.Unlock()
	c.removeOf(s)
	// An outside writer may have changed Prev and Next, so that they do not point into sequences. They are compared
	// and never dereferenced.
	prev, next := s.Node.Prev, s.Node.Next
	if h := c.entryOf(e, prev); h != nil && h.next == &s.Node {
		c.renext(h, next)
	}
	if h := c.entryOf(e, next); h != nil && h.prev == &s.Node {
		c.reprev(h, prev)
	}
	c.giveUp(s)
}

// invalidate must be called before s is freed together with its engine, and after removeEngine. If entries of other
// engines still refer to s, it resets the index.
func (c *lookupCache) invalidate(s *Sequence) {
	if !c.index.nonEmpty() {
		return
	}
	c.index.mu.Lock()
	defer c.index.mu.Unlock()
	c.giveUp(s)
}

// removeEngine removes all entries of e, because another engine may soon have the address of e.
func (c *lookupCache) removeEngine(e *Engine) {
	if !c.index.nonEmpty() {
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

// entryOf returns the entry of the sequence that n is part of. It returns nil if there is none, or if the entry is for
// another engine than e.
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

// renext and reprev change the next or the prev neighbour in an entry. If the index has no memory to record the new
// neighbour, the entry keeps the old neighbour and becomes invalid.
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

// put adds h. The cache must have no entry for h's id. If the index was reset since the last put, put first removes
// all entries of the cache, because the index no longer knows them.
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

// removeOf removes the entry of s if there is one. The cache of another core cannot be changed here, so removeOf
// resets the index if the entry is in such a cache.
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
