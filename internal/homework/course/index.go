package course

import (
	"sync"
	"sync/atomic"
)

// An index is the way back from a sequence to the cache entries that name it, so
// that no entry is followed into freed memory: whoever frees a sequence asks
// here first. It serves the caches of all cores, because an outside writer can
// move a sequence from one engine's list to another's.
//
// Of a sequence there is at most one entry at a time, whatever ids and engines
// it goes through, but it may be mentioned as a neighbour by any number. Where an
// entry turns out to be out of reach, everything is forgotten: reset starts a
// new epoch, and a cache drops its entries when it sees one. That takes an
// outside write, so it is rare, and costs each core a few walks.
//
// Only lookupCache uses it. All but any and epoch need mu.
type index struct {
	mu    sync.Mutex
	table table[named]
	used  atomic.Int64  // table.used, for those who do not hold mu
	epoch atomic.Uint32 // of the entries that are indexed here
}

// A named is what entries say about one sequence. engine is nil if the sequence has no
// entry itself.
type named struct {
	seq      *Sequence
	engine   *Engine
	id       int32
	mentions int32 // entries that name it as a neighbour
}

func (n named) empty() bool       { return n.seq == nil }
func (n named) same(o named) bool { return n.seq == o.seq }
func (n named) hash() uint64      { return address(n.seq) * 0x9e3779b97f4a7c15 }

// any reports whether there is an entry. A program with few sequences never has one,
// and pays nothing.
func (x *index) any() bool { return x.used.Load() != 0 }

// keyOf returns the key of the entry for s, if there is one.
func (x *index) keyOf(s *Sequence) (e *Engine, id int32, ok bool) {
	if n := x.table.get(named{seq: s}); n != nil && n.engine != nil {
		return n.engine, n.id, true
	}
	return nil, 0, false
}

// names reports whether any entry names s.
func (x *index) names(s *Sequence) bool { return x.table.get(named{seq: s}) != nil }

// add indexes h. Everything is forgotten if there is no memory for that.
func (x *index) add(h *entry) {
	if !x.change(h.seq, func(n *named) { n.engine, n.id = h.engine, h.id }) ||
		!x.mention(h.engine, h.prev, +1) || !x.mention(h.engine, h.next, +1) {
		x.reset() // half-indexed: too rare to take apart
	}
}

// remove takes h out.
func (x *index) remove(h *entry) {
	x.change(h.seq, func(n *named) { n.engine, n.id = nil, 0 })
	x.mention(h.engine, h.prev, -1)
	x.mention(h.engine, h.next, -1)
}

// mention counts an entry of e that names n as a neighbour, or no longer does.
// The head is no sequence. False if there is no memory.
func (x *index) mention(e *Engine, n *Node, by int32) bool {
	return n == &e.Active || x.change(sequenceOf(n), func(n *named) { n.mentions += by })
}

// change edits the named of s. It adds or removes it as needed, and returns false if there is
// no memory for it.
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

// reset forgets everything.
func (x *index) reset() {
	x.table.clear()
	x.used.Store(0)
	x.epoch.Add(1)
}
