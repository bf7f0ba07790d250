package course

import (
	"sync"
	"sync/atomic"
)

// An index finds the cache entries that name a sequence. Before a sequence is freed,
// the entries that name it are removed, so that no entry leads to freed memory. There
// is one index for the caches of all cores, because an outside writer can move a
// sequence from one engine's list to another's.
//
// A sequence has at most one entry at a time, even if its id or engine changes, but
// any number of entries may name it as a neighbour. If an entry must be removed that
// the caller cannot reach, reset starts a new epoch; a cache drops all its entries
// when it sees a new epoch. This happens only after outside writes, so it is rare,
// and it costs each core a few walks.
//
// Only lookupCache uses it. All methods but any need mu.
type index struct {
	mu    sync.Mutex
	table table[named]
	used  atomic.Int64  // table.used; can be read without mu
	epoch atomic.Uint32 // number of resets; can be read without mu
}

// A named is a sequence that cache entries name. engine and id are the key of its own entry. If it has no own
// entry, engine is nil.
type named struct {
	seq      *Sequence
	engine   *Engine
	id       int32
	mentions int32 // entries that name it as a neighbour
}

func (n named) empty() bool       { return n.seq == nil }
func (n named) same(o named) bool { return n.seq == o.seq }
func (n named) hash() uint64      { return address(n.seq) * 0x9e3779b97f4a7c15 }

// any reports whether there is an entry. Programs with few sequences never have one.
func (x *index) any() bool { return x.used.Load() != 0 }

// keyOf returns the key of the entry for s, if there is one.
func (x *index) keyOf(s *Sequence) (e *Engine, id int32, ok bool) {
	if n := x.table.get(named{seq: s}); n != nil && n.engine != nil {
		return n.engine, n.id, true
	}
	return nil, 0, false
}

func (x *index) names(s *Sequence) bool { return x.table.get(named{seq: s}) != nil }

// add indexes h. If there is no memory for that, it resets the index.
func (x *index) add(h *entry) {
	if !x.change(h.seq, func(n *named) { n.engine, n.id = h.engine, h.id }) ||
		!x.mention(h.engine, h.prev, +1) || !x.mention(h.engine, h.next, +1) {
		x.reset() // part of h may be indexed; this is too rare to undo it
	}
}

func (x *index) remove(h *entry) {
	x.change(h.seq, func(n *named) { n.engine, n.id = nil, 0 })
	x.mention(h.engine, h.prev, -1)
	x.mention(h.engine, h.next, -1)
}

// mention adds by to the number of entries that name n as a neighbour. n is a node of e's list; for the list head
// mention does nothing.
func (x *index) mention(e *Engine, n *Node, by int32) bool {
	return n == &e.Active || x.change(sequenceOf(n), func(n *named) { n.mentions += by })
}

// change calls edit with the named of s, which it adds before or removes afterwards as needed. It returns false
// if there is no memory.
func (x *index) change(s *Sequence, edit func(*named)) bool {
	n := x.table.add(named{seq: s})
	if n == nil {
		return false
	}
	if edit(n); n.engine == nil && n.mentions == 0 {
		x.table.remove(*n)
	}
	x.used.Store(int64(x.table.used))
	return true
}

func (x *index) reset() {
	x.table.clear()
	x.used.Store(0)
	x.epoch.Add(1)
}
