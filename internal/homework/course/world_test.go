package course

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"
)

func (e *Engine) count(id int32) *int32 {
	return (*int32)(unsafe.Add(unsafe.Pointer(e.RefCount), int(id)*4))
}

// A world has engines, pools, and all sequences ever made, in the order of their creation. The test compares two
// worlds. A sequence has the same index in seqs in both.
type world struct {
	engines []*Engine
	pools   [][]int32
	seqs    []*Sequence // nil once freed
}

func (w *world) name(s *Sequence) int {
	if s == nil {
		return -1
	}
	return slices.Index(w.seqs, s)
}

func (w *world) nodeName(n *Node) string {
	if n == nil {
		return "NULL"
	}
	for i, e := range w.engines {
		if n == &e.Active {
			return fmt.Sprintf("head%d", i)
		}
	}
	if i := w.name(sequenceOf(n)); i >= 0 {
		return fmt.Sprintf("s%d", i)
	}
	return "?"
}

// magic fills pools, so that a forbidden write shows.
func magic(word int) int32 { return int32(word+1) * 7919 }

// A line of a description is formatted only where two differ.
type line struct {
	format string
	values [6]any
}

func (l line) String() string {
	return fmt.Sprintf(l.format, l.values[:strings.Count(l.format, "%")]...)
}

// describe returns every visible field as text, so that a test can compare two worlds and print a difference.
func (w *world) describe(loose map[int]bool) []line {
	var lines []line
	add := func(format string, values ...any) {
		l := line{format: format}
		copy(l.values[:], values)
		lines = append(lines, l)
	}
	for i, e := range w.engines {
		add("engine%d total %d free %d pool %t list %s..%s", i, e.Total, e.Free, e.Pool != nil,
			w.nodeName(e.Active.Next), w.nodeName(e.Active.Prev))
		if e.RefCount != nil {
			for block, count := range unsafe.Slice(e.RefCount, len(w.pools[i])/KVPerBlock) {
				if count != 0 {
					add("engine%d count[%d] = %d", i, block, count)
				}
			}
		}
		for k, word := range w.pools[i] {
			if word != magic(k) {
				add("engine%d pool[%d][%d] = %d", i, k/KVPerBlock, k%KVPerBlock, word)
			}
		}
	}
	for i, s := range w.seqs {
		if s == nil {
			continue
		}
		add("s%d id %d kv_count %d", i, s.ID, s.KVCount)
		if !loose[i] { // the links of an unlinked sequence may name freed ones
			add("s%d links %s %s", i, w.nodeName(s.Node.Prev), w.nodeName(s.Node.Next))
		}
		if s.BlockTable == nil {
			add("s%d no table", i)
			continue
		}
		for k, l2 := range s.BlockTable {
			if l2 != nil {
				add("s%d L2[%d] %v", i, k, *l2)
			}
		}
	}
	return lines
}

func (w *world) listed(engine int) []*Sequence {
	var list []*Sequence
	head := &w.engines[engine].Active
	for n := head.Next; n != head && n != nil; n = n.Next {
		list = append(list, sequenceOf(n))
	}
	return list
}
