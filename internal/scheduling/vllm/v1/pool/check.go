package pool

import "llmmemory/internal/invariants"

// Check returns an error unless the queue has exactly the blocks with the count 0, each once, and the hash map has
// exactly the keys of the blocks. The null block must be in neither.
func (v View) Check() error {
	p := v.p
	if err := v.checkQueue(); err != nil {
		return err
	}
	if p.recs[Null].tokens != 0 || p.recs[Null].count != 0 {
		return invariants.Broken("the null block has the count %d and a key for %d tokens", p.recs[Null].count, p.recs[Null].tokens)
	}
	if !p.config.EnableCaching {
		return nil
	}
	nodes, err := p.checkRings()
	if err != nil {
		return err
	}
	return p.checkKeys(nodes)
}

func (v View) checkQueue() error {
	p := v.p
	queued := make([]bool, p.config.NumGPUBlocks)
	n, prev := 0, p.end()
	for id := range v.Queue() {
		switch {
		case id <= Null || int(id) >= p.config.NumGPUBlocks:
			return invariants.Broken("%d is in the queue", id)
		case queued[id]:
			return invariants.Broken("block %d is in the queue twice", id)
		case p.recs[id].count != 0:
			return invariants.Broken("block %d is in the queue with the count %d", id, p.recs[id].count)
		case p.recs[id].prev != prev:
			return invariants.Broken("block %d follows block %d in the queue, but its link is to %d", id, prev, p.recs[id].prev)
		}
		queued[id] = true
		prev = id
		n++
	}
	if n != p.free || p.recs[p.end()].prev != prev {
		return invariants.Broken("the queue has %d blocks and ends with %d, recorded are %d and %d", n, prev, p.free, p.recs[p.end()].prev)
	}
	for id := range queued {
		if count := p.recs[id].count; id != int(Null) && (count < 0 || count == 0 != queued[id]) {
			return invariants.Broken("block %d has the count %d, in the queue: %t", id, count, queued[id])
		}
	}
	return nil
}

func (p *Pool) checkRings() (nodes int, err error) {
	used := 0
	for i := range p.slots {
		s := p.slots[i]
		if s.head == 0 {
			continue
		}
		used++
		head := s.head - 1
		first := p.entry(head)
		if slot, found := p.find(&first.hash, first.group, tagOf(&first.hash, first.group)); !found || int(slot) != i {
			return 0, invariants.Broken("slot %d holds a key that is found at %d (%t)", i, slot, found)
		}
		size := 0
		for node := head; ; {
			e := p.entry(node)
			if e.group != first.group || e.hash != first.hash {
				return 0, invariants.Broken("node %d has another key than node %d of its ring", node, head)
			}
			if p.recs[p.owner(node)].tokens == 0 {
				return 0, invariants.Broken("block %d is in the map without a key", p.owner(node))
			}
			if p.entry(e.younger).older != node {
				return 0, invariants.Broken("node %d is not the one in front of %d", node, e.younger)
			}
			if size++; size > p.config.NumGPUBlocks+len(p.additional) {
				return 0, invariants.Broken("the ring of node %d has no end", head)
			}
			if node = e.younger; node == head {
				break
			}
		}
		if size > 1 && s.tag&duplicated == 0 {
			return 0, invariants.Broken("%d nodes have one key, but it is not marked", size)
		}
		nodes += size
	}
	if used != p.used {
		return 0, invariants.Broken("%d keys are in the map, recorded are %d", used, p.used)
	}
	return nodes, nil
}

func (p *Pool) checkKeys(nodes int) error {
	n := 0
	for id := range p.config.NumGPUBlocks {
		if p.recs[id].tokens == 0 {
			if p.firstAdditional(int32(id)) >= 0 {
				return invariants.Broken("block %d has additional keys, but no primary one", id)
			}
			continue
		}
		n++
		e := &p.recs[id].entry
		if _, found := p.find(&e.hash, e.group, tagOf(&e.hash, e.group)); !found {
			return invariants.Broken("the key of block %d is not in the map", id)
		}
		for i := p.firstAdditional(int32(id)); i >= 0; i = p.additional[i].next {
			if n++; p.additional[i].block != int32(id) {
				return invariants.Broken("block %d has a key of block %d", id, p.additional[i].block)
			}
		}
	}
	if n != nodes {
		return invariants.Broken("blocks have %d keys, the map has %d", n, nodes)
	}
	if free := len(p.additional) - len(p.spare); free < 0 || n < free {
		return invariants.Broken("%d of %d additional keys are unused", len(p.spare), len(p.additional))
	}
	return nil
}
