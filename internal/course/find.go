package course

// plainNodes is how many nodes from the head are always walked, so that what
// they decide never depends on a hint. Walking them costs about as much as
// looking a hint up.
const plainNodes = 16

// nearNodes more than those a list must have before hints are made for it. To
// walk so few costs less than making a hint and taking it away again when a
// neighbour goes.
const nearNodes = 8

// find returns the first sequence of the list with the id, or nil. A list that
// ends in NULL instead of its head ends there.
//
// Where the list goes on behind the first nodes, a hint is fetched even if one
// of those has been found: it then names the same sequence, and there is
// nothing left for the processor to guess wrong.
func (c *core) find(e *Engine, id int32) *Sequence {
	match, n := walk(&e.Active, id)
	if n == nil {
		return sequenceOf(match)
	}
	if c.lib.Strict {
		return sequenceOf(walkOn(&e.Active, n, match, id))
	}
	if h := c.recall(e, id); h != nil {
		expected := &h.seq.Node
		if match != nil {
			expected = match
		}
		// Only now may the hint be followed: it leads to a node just walked, or
		// no walked node has the id.
		if expected == &h.seq.Node && h.holds() {
			return h.seq
		}
		c.dismiss(h)
	}
	s := sequenceOf(walkOn(&e.Active, n, match, id))
	if s != nil && long(&e.Active, n) {
		c.remember(e, s)
	}
	return s
}

// walk looks at the first plainNodes nodes. It returns the first one among them
// whose sequence has the id, or nil, and the node behind them, which is nil
// where the list ends before. It does not stop at a match: an exit that depends
// on the id would be mispredicted, and cost more than the rest of the walk.
// Four nodes a round, because this loop is most of what an append costs here.
func walk(head *Node, id int32) (match, n *Node) {
	key := uint64(uint32(id))
	n = head.Next
	for range plainNodes / 4 {
		if n == head || n == nil {
			return match, nil
		}
		n, match, key = look(n, match, key)
		if n == head || n == nil {
			return match, nil
		}
		n, match, key = look(n, match, key)
		if n == head || n == nil {
			return match, nil
		}
		n, match, key = look(n, match, key)
		if n == head || n == nil {
			return match, nil
		}
		n, match, key = look(n, match, key)
	}
	if n == head {
		n = nil
	}
	return match, n
}

// look compares one node without a branch. After the first match the key is one
// that no id has.
func look(n, match *Node, key uint64) (next, first *Node, remaining uint64) {
	const never = ^uint64(0)
	if uint64(uint32(idOf(n))) == key {
		match = n
		key = never
	}
	return n.Next, match, key
}

// walkOn returns match if there is one, and else looks at the nodes from n on.
func walkOn(head, n, match *Node, id int32) *Node {
	for ; match == nil && n != head && n != nil; n = n.Next {
		if idOf(n) == id {
			match = n
		}
	}
	return match
}

// long reports whether more than nearNodes nodes follow from n on.
func long(head, n *Node) bool {
	for range nearNodes {
		if n == head || n == nil {
			return false
		}
		n = n.Next
	}
	return n != head && n != nil
}
