package course

// plainNodes is how many nodes from the head are always walked, so that what
// they decide never depends on a hint.
const plainNodes = 16

// nearNodes more are walked, too, though a hint is looked for first: to walk so
// few costs less than making a hint and taking it away again when a neighbour
// goes.
const nearNodes = 8

// find returns the first sequence of the list with the id, or nil. A list that
// ends in NULL instead of its head ends there. Four nodes a round, because this
// loop is most of what an append costs here.
func (c *core) find(e *Engine, id int32) *Sequence {
	head := &e.Active
	n := head.Next
	for range plainNodes / 4 {
		if n == head || n == nil {
			return nil
		}
		if idOf(n) == id {
			return sequenceOf(n)
		}
		n = n.Next
		if n == head || n == nil {
			return nil
		}
		if idOf(n) == id {
			return sequenceOf(n)
		}
		n = n.Next
		if n == head || n == nil {
			return nil
		}
		if idOf(n) == id {
			return sequenceOf(n)
		}
		n = n.Next
		if n == head || n == nil {
			return nil
		}
		if idOf(n) == id {
			return sequenceOf(n)
		}
		n = n.Next
	}
	if n == head || n == nil {
		return nil
	}
	return c.findBehind(e, n, id)
}

// findBehind goes on at n, behind the first nodes, none of which has the id.
func (c *core) findBehind(e *Engine, n *Node, id int32) *Sequence {
	if h := c.recall(e, id); h != nil {
		if h.holds() {
			return h.seq
		}
		c.dismiss(h)
	}
	head := &e.Active
	for prev, steps := (*Node)(nil), 0; n != head && n != nil; prev, n, steps = n, n.Next, steps+1 {
		if idOf(n) == id {
			s := sequenceOf(n)
			if steps >= nearNodes && !c.lib.Strict {
				c.remember(e, s, prev)
			}
			return s
		}
	}
	return nil
}
