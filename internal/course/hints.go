package course

// Hints answer "which sequence has this id" beyond the first nodes of a list.
//
// A hint is made when a walk finds a sequence, and records where: between which
// two neighbours. It is believed only if the visible memory still says so: the
// sequence has the id, sits between the same two, and they point back at it.
// One node that an outside writer renames, unlinks, or links in elsewhere, even
// into another engine's list, fails that check. What the check cannot see is
// written in llm_memory.h.
//
// Checking a hint reads three sequences, and none may have been freed. The
// ledger knows which those are (ledger.go).
type hint struct {
	engine     *Engine
	seq        *Sequence
	prev, next *Node
	id         int32
}

func (h hint) empty() bool      { return h.seq == nil }
func (h hint) same(o hint) bool { return h.engine == o.engine && h.id == o.id }
func (h hint) hash() uint64     { return hintHash(h.engine, h.id) }

// holds reports whether the visible memory still says what h recorded.
func (h *hint) holds() bool {
	n := &h.seq.Node
	return h.seq.ID == h.id && n.Prev == h.prev && n.Next == h.next && h.prev.Next == n && h.next.Prev == n
}

// hintHash mixes with an odd constant; consecutive ids end up far apart.
func hintHash(e *Engine, id int32) uint64 {
	return (uint64(uint32(id)) ^ address(e)<<17) * 0x9e3779b97f4a7c15
}

type hints = table[hint]

// recall returns the hint for the id, not yet checked, or nil.
func (c *core) recall(e *Engine, id int32) *hint {
	slots := c.hints.slots
	if len(slots) == 0 {
		return nil
	}
	if c.epoch != c.lib.ledger.epoch.Load() {
		c.hints.clear()
		return nil
	}
	for i := hintHash(e, id) >> c.hints.shift; ; i++ {
		h := &slots[i&uint64(len(slots)-1)]
		if h.seq == nil {
			return nil
		}
		if h.id == id && h.engine == e {
			return h
		}
	}
}

// remember makes the hint for s, which a walk has just found in e's list behind
// prev. Where the way back is another, s gets none: a list need not have one.
func (c *core) remember(e *Engine, s *Sequence, prev *Node) {
	if s.Node.Prev != prev || s.Node.Next == nil {
		return
	}
	c.catchUp()
	if engine, id, ok := c.lib.ledger.subject(s); ok {
		c.retract(engine, id)
	}
	h := hint{engine: e, seq: s, prev: prev, next: s.Node.Next, id: s.ID}
	c.dismiss(c.hints.get(h))
	if c.hints.put(h) && !c.lib.ledger.enter(h, c.epoch) {
		c.hints.remove(h)
	}
}

// forget takes away every hint that names s, which is about to be freed. Its
// neighbours' hints are among them, and wrong from now on in any case.
func (c *core) forget(e *Engine, s *Sequence) {
	if !c.lib.ledger.any() {
		return
	}
	c.catchUp()
	for _, n := range []*Node{s.Node.Prev, s.Node.Next} {
		if n == nil || n == &e.Active {
			continue
		}
		// By address: what a link leads to need not be a sequence.
		if engine, id, ok := c.lib.ledger.subject(sequenceOf(n)); ok {
			c.retract(engine, id)
		}
	}
	c.bury(s)
}

// bury takes away the hint for s, and all hints if another one mentions it: an
// outside writer has been at work.
func (c *core) bury(s *Sequence) {
	ledger := &c.lib.ledger
	if engine, id, ok := ledger.subject(s); ok {
		c.retract(engine, id)
	}
	if ledger.knows(s) {
		ledger.reset()
	}
}

// retract takes the hint with that key away. Another core's hints cannot be
// touched from here; then all are given up.
func (c *core) retract(e *Engine, id int32) {
	if &c.lib.cores[coreOf(e)] != c {
		c.lib.ledger.reset()
		c.catchUp()
		return
	}
	c.dismiss(c.hints.get(hint{engine: e, id: id}))
}

// dismiss takes h away, if there is one.
func (c *core) dismiss(h *hint) {
	if h != nil {
		c.lib.ledger.strike(*h, c.epoch)
		c.hints.remove(*h)
	}
}

// purge takes away every hint for e, whose address may soon be another's.
func (c *core) purge(e *Engine) {
	c.catchUp()
	for i := 0; i < len(c.hints.slots); {
		if h := &c.hints.slots[i]; !h.empty() && h.engine == e {
			c.dismiss(h) // pulls a later one into this place
		} else {
			i++
		}
	}
}

// catchUp drops hints that are older than the last reset.
func (c *core) catchUp() {
	if epoch := c.lib.ledger.epoch.Load(); c.epoch != epoch {
		c.hints.clear()
		c.epoch = epoch
	}
}
