package course

import (
	"sync"
	"sync/atomic"
)

// An index finds the cache entries that refer to a sequence. Before a sequence is freed, these entries are removed or
// become outdated, so that no entry in use refers to freed memory. The caches of all cores share one index, because an
// outside writer can move a sequence from one engine's list to another's.
//
// A sequence has at most one entry of its own, even if its id or its engine changes. Any number of entries may refer to
// it as a neighbour. An entry may be in the cache of another core, which the caller cannot change. If such an entry
// must be removed, reset starts a new epoch. A cache does not use entries of an older epoch, and removes them when it
// adds its next entry. A reset happens only after outside writes, or if there is no memory, and then costs each core a
// few searches.
//
// Only lookupCache uses the index, except that Library.Init calls nonEmpty. A caller of a method must hold mu, except
// for nonEmpty.
type index struct {
	mu    sync.Mutex
	table table[named]
	used  atomic.Int64  // table.used; can be read without mu
	epoch atomic.Uint32 // number of resets; can be read without mu
}

// A named is the record of a sequence that cache entries refer to. engine and id are the key of the entry for this
// sequence. If there is no such entry, engine is nil. The sequence is then only a neighbour in the entries for other
// sequences.
type named struct {
	seq      *Sequence
	engine   *Engine
	id       int32
	mentions int32 // entries that name it as a neighbour
}

func (n named) empty() bool          { return n.seq == nil }
func (n named) sameKey(o named) bool { return n.seq == o.seq }
func (n named) hash() uint64         { return address(n.seq) * 0x9e3779b97f4a7c15 }

// nonEmpty reports whether there is any entry that is not outdated. A program whose lists are short never has one.
func (x *index) nonEmpty() bool { return x.used.Load() != 0 }

// keyOf returns the key of the cache entry for s: its engine and its id. ok is false if s has no entry.
func (x *index) keyOf(s *Sequence) (e *Engine, id int32, ok bool) {
	if n := x.table.get(named{seq: s}); n != nil && n.engine != nil {
		return n.engine, n.id, true
	}
	return nil, 0, false
}

func (x *index) names(s *Sequence) bool { return x.table.get(named{seq: s}) != nil }

// add records that h refers to its sequence and both neighbours. If there is no memory for that, it resets the index.
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

// mention adds delta to the count of entries that refer to n as a neighbour. n is a node of e's list. The head of the
// list is not counted. mention returns false if there is no memory.
func (x *index) mention(e *Engine, n *Node, delta int32) bool {
	return n == &e.Active || x.change(sequenceOf(n), func(n *named) { n.mentions += delta })
}

// change calls edit with the record of s. If there is no record, it first adds one. If no entry refers to s after the
// edit, it removes the record. It returns false if there is no memory.
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
