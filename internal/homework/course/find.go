package course

// plainNodes is the number of nodes at the beginning of the list that a search always reads. The cache gets no entries
// for them.
const plainNodes = 16

// nearNodes is the number of nodes, after the first plainNodes, for which the cache gets no entries either. Reading
// these nodes costs less than a cache entry.
const nearNodes = 8

// find returns the first sequence of the list with the id, or nil if there is none. If several sequences have the id, a
// cache entry may lead to a later one. The list ends at the node whose Next is the head or NULL.
func (c *core) find(e *Engine, id int32) *Sequence {
	n, found := walkFirst(e, id)
	switch {
	case found:
		return sequenceOf(n)
	case n == nil:
		c.cache.forget(e, id)
		return nil
	}
	if s := c.cache.lookup(e, id); s != nil {
		return s
	}
	s, _ := c.walkRest(e, n, id)
	return s
}

// absent reports whether no sequence of the list has the id. If so, last is the last node of the list. If the library is
// strict or the list is short, last is nil, because a sequence added at its end needs no cache entry.
func (c *core) absent(e *Engine, id int32) (last *Node, ok bool) {
	n, found := walkFirst(e, id)
	switch {
	case found:
		return nil, false
	case n == nil:
		c.cache.forget(e, id)
		return nil, true
	}
	if c.cache.lookup(e, id) != nil {
		return nil, false
	}
	s, last := c.walkRest(e, n, id)
	return last, s == nil
}

// walkFirst reads the first plainNodes nodes of the list. If one has the id, it returns this node and true. Otherwise
// it returns the node after them, or nil if the list has ended.
func walkFirst(e *Engine, id int32) (n *Node, found bool) {
	head := &e.Active
	n = head.Next
	for range plainNodes {
		if n == head || n == nil {
			return nil, false
		}
		if idOf(n) == id {
			return n, true
		}
		n = n.Next
	}
	if n == head {
		n = nil
	}
	return n, false
}

// walkRest searches the list from n on. If it finds the id, it returns the sequence. It also adds a cache entry for the
// sequence. It adds none if the library is strict, if the sequence is near the head of the list, or if an outside write
// has broken the sequence's links.
//
// If walkRest does not find the id, it returns the last node of the list as last. If the library is strict or the list
// is short, last is nil instead, because a sequence that is added at the end of such a list needs no cache entry.
func (c *core) walkRest(e *Engine, n *Node, id int32) (s *Sequence, last *Node) {
	w := walk{engine: e, id: id, next: n}
	if c.lib.Strict {
		w.plain()
	} else {
		w.guided(c.order.forEngine(e))
	}
	if w.found {
		s = sequenceOf(w.next)
	}
	if c.lib.Strict || w.steps < nearNodes {
		return s, nil
	}
	switch {
	case !w.found:
		last = w.prev
	case w.next.Prev == w.prev && w.next.Next != nil: // outside writes may have broken these links
		c.cache.insert(entry{engine: e, id: id, seq: s, prev: w.prev, next: w.next.Next})
	}
	return s, last
}
