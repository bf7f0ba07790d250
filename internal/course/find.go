package course

// plainNodes is how many nodes from the head are always walked, so that what
// they decide never depends on a hint. Walking them costs about as much as
// looking a hint up.
const plainNodes = 16

// find returns the first sequence of the list with the id, or nil. A list that
// ends in NULL instead of its head ends there.
func (c *core) find(e *Engine, id int32) *Sequence {
	head := &e.Active
	n := head.Next
	for range plainNodes {
		if n == head || n == nil {
			return nil
		}
		s := sequenceOf(n)
		if s.ID == id {
			return s
		}
		n = n.Next
	}
	return c.findBehind(e, n, id)
}

// findBehind goes on from the first node that find did not look at.
func (c *core) findBehind(e *Engine, n *Node, id int32) *Sequence {
	if !c.lib.Strict {
		if s := c.recall(e, id); s != nil {
			return s
		}
	}
	for head := &e.Active; n != head && n != nil; n = n.Next {
		if s := sequenceOf(n); s.ID == id {
			if !c.lib.Strict {
				c.remember(e, s)
			}
			return s
		}
	}
	return nil
}
