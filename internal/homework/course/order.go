package course

import (
	"slices"
	"unsafe"
)

// An order is a guess at the list of one engine: the nodes after the first ones,
// as the last walk met them. It may be wrong, and may name memory that was freed long
// ago: a node of it is read only after the node before it, in the list itself, was seen
// to point there.
//
// It lies in pages from the kernel, for the reasons that a table does.
type order struct {
	engine *Engine
	nodes  []*Node
}

const (
	firstOrder = 512 // nodes in one page
	maxAhead   = 8   // at most this many sequences freed in a row are skipped
)

// forEngine makes o an order of e. A core with several engines that take turns guesses
// nothing.
func (o *order) forEngine(e *Engine) *order {
	if o.engine != e {
		o.engine, o.nodes = e, o.nodes[:0]
	}
	return o
}

// ahead returns how far after from the guess has n, 0 if not within maxAhead.
func (o *order) ahead(from int, n *Node) int {
	if from >= len(o.nodes) {
		return 0
	}
	return max(0, slices.Index(o.nodes[from:min(len(o.nodes), from+maxAhead)], n))
}

// met writes down that n comes after nodes[:to], and returns where the guess goes
// on: after what it has overwritten, or -1 if there is no memory.
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

// close removes the entries of the guess between to and from.
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

// release gives all memory back.
func (o *order) release() {
	if size := cap(o.nodes); size > 0 {
		unmap(unsafe.Pointer(unsafe.SliceData(o.nodes)), uintptr(size)*unsafe.Sizeof((*Node)(nil)))
	}
	o.nodes = nil
}
