package course

import (
	"slices"
	"unsafe"
)

// An order is a guess at the order of the nodes in one engine's list, after the first plainNodes. It comes from the
// last search. It may be wrong and may refer to freed memory, so a node is read only after a link of the list itself
// has led to it.
//
// During a search, nodes has two parts. The first part has the nodes that the search has already met, and the rest is
// the guess for the following nodes. There may be a gap of outdated nodes between the two parts.
//
// The memory of nodes is pages from the kernel, for the reasons given at table.
type order struct {
	engine *Engine
	nodes  []*Node
}

const (
	firstOrder = 512 // nodes in one page
	maxAhead   = 8   // nodes of the guess in which a node is searched for
)

// forEngine returns o. If o is the order of another engine, forEngine first makes it the empty order of e.
func (o *order) forEngine(e *Engine) *order {
	if o.engine != e {
		o.engine, o.nodes = e, o.nodes[:0]
	}
	return o
}

// distance searches for n in the nodes that the search expects next. They begin at nodes[guess], and distance looks
// only at the first maxAhead of them. It returns the number of nodes between nodes[guess] and n, including nodes[guess]
// itself. It returns 0 if nodes[guess] is n, or if it does not find n.
func (o *order) distance(guess int, n *Node) int {
	if guess >= len(o.nodes) {
		return 0
	}
	return max(0, slices.Index(o.nodes[guess:min(len(o.nodes), guess+maxAhead)], n))
}

// record stores n, the next node that the search has met, as nodes[index]. The nodes that the search expects next begin
// at nodes[guess]. record returns the new value of guess. This is the old value, or one more if n is now nodes[guess].
// If there is no memory, record returns -1.
func (o *order) record(index, guess int, n *Node) int {
	if index == len(o.nodes) {
		if index == cap(o.nodes) && !o.grow() {
			return -1
		}
		o.nodes = o.nodes[:index+1]
	}
	o.nodes[index] = n
	return max(guess, index+1)
}

func (o *order) close(index, guess int) {
	if index < guess {
		o.nodes = o.nodes[:index+copy(o.nodes[index:], o.nodes[guess:])]
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
