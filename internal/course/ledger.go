package course

import (
	"sync"
	"sync/atomic"
)

// The ledger knows which sequences hints name, so that no hint is followed into
// freed memory: whoever frees a sequence asks here first. It serves all cores,
// because an outside writer can move a sequence from one engine's list to
// another's.
//
// Of a sequence there is at most one hint at a time, whatever ids and engines it
// goes through, but it may be mentioned as a neighbour by any number. Where a
// hint turns out to be out of reach, everything is forgotten: reset starts a new
// epoch, and a core drops its hints when it sees one. That takes an outside
// write, so it is rare, and costs each core a few walks.
type ledger struct {
	mu    sync.Mutex
	table table[entry]
	used  atomic.Int64  // table.used, for those who do not hold mu
	epoch atomic.Uint32 // of the hints that are entered here
}

// An entry is what hints say about one sequence. Without a hint of its own
// engine is nil.
type entry struct {
	seq      *Sequence
	engine   *Engine
	id       int32
	mentions int32 // hints that name it as a neighbour
}

func (n entry) empty() bool       { return n.seq == nil }
func (n entry) same(o entry) bool { return n.seq == o.seq }
func (n entry) hash() uint64      { return address(n.seq) * 0x9e3779b97f4a7c15 }

// any reports whether there is any hint at all: a program with few sequences
// never has one, and pays nothing.
func (l *ledger) any() bool { return l.used.Load() != 0 }

// subject returns the key of the hint for s, if there is one.
func (l *ledger) subject(s *Sequence) (e *Engine, id int32, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.table.get(entry{seq: s}); n != nil && n.engine != nil {
		return n.engine, n.id, true
	}
	return nil, 0, false
}

// knows reports whether any hint names s.
func (l *ledger) knows(s *Sequence) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.table.get(entry{seq: s}) != nil
}

// enter adds h, made in that epoch. False, and nothing entered, if there is no
// memory or the epoch is over.
func (l *ledger) enter(h hint, epoch uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch.Load() != epoch {
		return false
	}
	ok := l.change(h.seq, func(n *entry) { n.engine, n.id = h.engine, h.id })
	for _, n := range []*Node{h.prev, h.next} {
		if n != &h.engine.Active {
			ok = l.change(sequenceOf(n), func(n *entry) { n.mentions++ }) && ok
		}
	}
	if !ok {
		l.resetLocked() // half-entered: out of memory, too rare to take apart
	}
	return ok
}

// strike takes h out, unless its epoch is over.
func (l *ledger) strike(h hint, epoch uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch.Load() != epoch {
		return
	}
	l.change(h.seq, func(n *entry) { n.engine = nil })
	for _, n := range []*Node{h.prev, h.next} {
		if n != &h.engine.Active {
			l.change(sequenceOf(n), func(n *entry) { n.mentions-- })
		}
	}
}

// change edits the entry of s, which comes into being or goes as needed. False
// if there is no memory for it.
func (l *ledger) change(s *Sequence, edit func(*entry)) bool {
	n := l.table.get(entry{seq: s})
	if n == nil {
		if !l.table.put(entry{seq: s}) {
			return false
		}
		n = l.table.get(entry{seq: s})
	}
	if edit(n); n.engine == nil && n.mentions == 0 {
		l.table.remove(*n)
	}
	l.used.Store(int64(l.table.used))
	return true
}

// reset forgets everything.
func (l *ledger) reset() {
	l.mu.Lock()
	l.resetLocked()
	l.mu.Unlock()
}

func (l *ledger) resetLocked() {
	l.table.clear()
	l.used.Store(0)
	l.epoch.Add(1)
}
