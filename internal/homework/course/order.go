package course

import (
	"slices"
	"unsafe"
)

// An order is a guess at the order of the nodes in one engine's list, after the first plainNodes. It comes from the
// last search. It may be wrong and may refer to freed memory, so a node is read only after a link of the list itself
// has led to it.
//
// Its memory is pages from the kernel, as that of a table is.
type order struct {
	engine *Engine
	nodes  []*Node
}

const (
	firstOrder = 512 // nodes in one page
	maxAhead   = 8   // how far ahead a node is searched for in the guess
)

// forEngine returns o. If o is the order of another engine, forEngine first makes it the empty order of e.
func (o *order) forEngine(e *Engine) *order {
	if o.engine != e {
		o.engine, o.nodes = e, o.nodes[:0]
	}
	return o
}

// ahead searches the guess for n, beginning at the index from. It returns the distance from there to n, or 0 if n is
// not among the next maxAhead nodes.
func (o *order) ahead(from int, n *Node) int {
	if from >= len(o.nodes) {
		return 0
	}
	return max(0, slices.Index(o.nodes[from:min(len(o.nodes), from+maxAhead)], n))
}

// met records that n is at the index to in the list. The guess for the following nodes begins at the index from. If
// recording n overwrites the first node of the guess, the guess begins one node later; met returns the index where it
// begins. It returns -1 if there is no memory.
func (o *order) met(to, from int, n *Node) int {
	if to == len(o.nodes) {
		if to == cap(o.nodes) && !o.grow() {
			return -1
		}
		o.nodes = o.nodes[:to+1]
	}
	o.nodes[to] = n
	return max(from, to+1)
}

func (o *order) close(to, from int) {
	if to < from {
		o.nodes = o.nodes[:to+copy(o.nodes[to:], o.nodes[from:])]
	}
}

func (o *order) grow() bool {
	n := max(firstOrder, 2*cap(o.nodes))
	p := mapPages(uintptr(n) * unsafe.Sizeof((*Node)(nil)))
	if p == nil {
		return false
	}
	nodes := unsafe.Slice((**Node)(p), n)[:len(o.nodes)]
	copy(nodes, o.nodes)
	o.release()
	o.nodes = nodes
	return true
}

func (o *order) release() {
	if size := cap(o.nodes); size > 0 {
		unmap(unsafe.Pointer(unsafe.SliceData(o.nodes)), uintptr(size)*unsafe.Sizeof((*Node)(nil)))
	}
	o.nodes = nil
}
