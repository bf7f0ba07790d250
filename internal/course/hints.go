package course

import (
	"sync"
	"sync/atomic"
)

// Hints answer "which sequence has this id" beyond the first nodes of a list.
//
// A hint is made when a walk finds a sequence, and records where: between which
// two neighbours. It is believed only if the visible memory still says so: the
// sequence has the id, sits between the same two, and they point back at it.
// One node that an outside writer renames, unlinks, or links in elsewhere, even
// into another engine's list, fails that check. What the check cannot see is
// written in llm_memory.h.
//
// A hint must never be followed into freed memory. So of each sequence there is
// at most one hint, whatever ids or engines it went through: owners knows it,
// and freeing a sequence takes it away. owners is shared by all cores, since a
// writer can move a sequence between engines of different cores; a core cannot
// touch another's hints, it raises the other's stale instead.

type hint struct {
	engine     *Engine
	seq        *Sequence
	prev, next *Node
	id         int32
}

func (h hint) empty() bool      { return h.seq == nil }
func (h hint) same(o hint) bool { return h.engine == o.engine && h.id == o.id }
func (h hint) hash() uint64     { return hintHash(h.engine, h.id) }

// holds reports whether the visible memory still says what h recorded.
func (h *hint) holds() bool {
	n := &h.seq.Node
	return h.seq.ID == h.id && n.Prev == h.prev && n.Next == h.next && h.prev.Next == n && h.next.Prev == n
}

// hintHash mixes with two odd constants; consecutive ids end up far apart.
func hintHash(e *Engine, id int32) uint64 {
	return (uint64(uint32(id)) ^ address(e)<<17) * 0x9e3779b97f4a7c15
}

type hints = table[hint]

// recall returns the hint for the id, not yet checked, or nil.
func (c *core) recall(e *Engine, id int32) *hint {
	if c.stale.Load() != 0 {
		c.stale.Store(0)
		c.hints.clear()
	}
	slots := c.hints.slots
	if len(slots) == 0 {
		return nil
	}
	for i := hintHash(e, id) >> c.hints.shift; ; i++ {
		h := &slots[i&uint64(len(slots)-1)]
		if h.seq == nil {
			return nil
		}
		if h.id == id && h.engine == e {
			return h
		}
	}
}

// remember makes the hint for s, which a walk has just found in e's list.
func (c *core) remember(e *Engine, s *Sequence) {
	if s.Node.Prev == nil || s.Node.Next == nil {
		return
	}
	c.dismiss(s)
	if c.hints.put(hint{engine: e, seq: s, prev: s.Node.Prev, next: s.Node.Next, id: s.ID}) {
		if !c.lib.owners.put(owner{seq: s, engine: e, id: s.ID}) {
			c.hints.remove(hint{engine: e, id: s.ID})
		}
	}
}

// forget takes away the hint for s, which is about to be freed.
func (c *core) forget(s *Sequence) {
	if c.lib.owners.any() {
		c.dismiss(s)
	}
}

// dismiss takes the one hint for s away, wherever it is.
func (c *core) dismiss(s *Sequence) {
	was, ok := c.lib.owners.take(s)
	if !ok {
		return
	}
	other := &c.lib.cores[coreOf(was.engine)]
	if other != c {
		other.stale.Store(1)
		return
	}
	key := hint{engine: was.engine, id: was.id}
	if h := c.hints.get(key); h != nil && h.seq == s {
		c.hints.remove(key)
	}
}

// purge takes away every hint for e, whose address may soon be another's.
func (c *core) purge(e *Engine) {
	for i := 0; i < len(c.hints.slots); {
		h := c.hints.slots[i]
		if h.empty() || h.engine != e {
			i++
			continue
		}
		c.lib.owners.take(h.seq)
		c.hints.remove(h) // pulls a later one into this place
	}
}

// owners maps a sequence to the key of its hint.
type owners struct {
	mu    sync.Mutex
	table table[owner]
	used  atomic.Int64 // table.used, for those who do not hold mu
}

type owner struct {
	seq    *Sequence
	engine *Engine
	id     int32
}

func (o owner) empty() bool       { return o.seq == nil }
func (o owner) same(p owner) bool { return o.seq == p.seq }
func (o owner) hash() uint64      { return address(o.seq) * 0x9e3779b97f4a7c15 }

// any reports whether there is any hint at all: a program with few sequences
// never has one, and pays nothing.
func (o *owners) any() bool { return o.used.Load() != 0 }

func (o *owners) put(w owner) bool {
	o.mu.Lock()
	ok := o.table.put(w)
	o.used.Store(int64(o.table.used))
	o.mu.Unlock()
	return ok
}

func (o *owners) take(s *Sequence) (owner, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := o.table.get(owner{seq: s})
	if found == nil {
		return owner{}, false
	}
	was := *found
	o.table.remove(was)
	o.used.Store(int64(o.table.used))
	return was, true
}
