package pool

import "llmmemory/internal/scheduling/blockhash"

// An additionalKey is a key of a block that already has a primary key. It is the key of a prefix that ends inside the
// block (a partial entry, vllm/v1/RULES.md §10).
type additionalKey struct {
	entry
	block int32
	next  int32 // index of the block's next additional key, or -1
}

func (p *Pool) owner(node int32) int32 {
	if int(node) < p.config.NumGPUBlocks {
		return node
	}
	return p.additional[int(node)-p.config.NumGPUBlocks].block
}

// insert gives block id a key, which is its primary key if the block has no key yet. insert does nothing if the block
// already has this key.
func (p *Pool) insert(id int32, h *blockhash.Hash, group uint32, tokens int) {
	if p.hasKey(id, h, group) {
		return
	}
	p.recs[id].stamp = p.stamp
	if p.recs[id].tokens != 0 {
		p.insertAdditional(id, h, group)
		return
	}
	rec := &p.recs[id]
	rec.tokens, rec.hash, rec.group = uint32(tokens), *h, group
	p.enter(id)
}

func (p *Pool) hasKey(id int32, h *blockhash.Hash, group uint32) bool {
	if p.recs[id].tokens == 0 {
		return false
	}
	if e := &p.recs[id]; e.group == group && e.hash.Equal(h) {
		return true
	}
	for i := p.firstAdditional(id); i >= 0; i = p.additional[i].next {
		if e := &p.additional[i]; e.group == group && e.hash.Equal(h) {
			return true
		}
	}
	return false
}

// firstAdditional returns the index of the first additional key of block id, or -1.
func (p *Pool) firstAdditional(id int32) int32 {
	if len(p.first) == 0 {
		return -1
	}
	if i, ok := p.first[id]; ok {
		return i
	}
	return -1
}

func (p *Pool) insertAdditional(id int32, h *blockhash.Hash, group uint32) {
	var i int32
	if n := len(p.spare); n > 0 {
		i, p.spare = p.spare[n-1], p.spare[:n-1]
	} else {
		i = int32(len(p.additional))
		p.additional = append(p.additional, additionalKey{})
	}
	p.additional[i] = additionalKey{entry: entry{hash: *h, group: group}, block: id, next: -1}
	if last := p.firstAdditional(id); last < 0 {
		if p.first == nil {
			p.first = map[int32]int32{}
		}
		p.first[id] = i
	} else {
		for p.additional[last].next >= 0 {
			last = p.additional[last].next
		}
		p.additional[last].next = i
	}
	p.enter(int32(p.config.NumGPUBlocks) + i)
}

// forget removes all keys of id, the primary key first. If record is true, it adds an event for each key.
func (p *Pool) forget(id int32, record bool) {
	if p.recs[id].tokens == 0 {
		return
	}
	p.leave(id)
	p.recs[id].tokens = 0
	if record {
		p.events.removed(&p.recs[id].hash, p.recs[id].group)
	}
	i := p.firstAdditional(id)
	if i < 0 {
		return
	}
	delete(p.first, id)
	for ; i >= 0; i = p.additional[i].next {
		p.leave(int32(p.config.NumGPUBlocks) + i)
		if record {
			p.events.removed(&p.additional[i].hash, p.additional[i].group)
		}
		p.spare = append(p.spare, i)
	}
}

// SetStamp sets the number of the current step. Keys that are inserted from then on record this number (see
// View.InsertedSince).
func (p *Pool) SetStamp(step uint32) { p.stamp = step }

// Move gives all keys of block src to block dst, which must have no keys. The caller has copied src to dst and will
// overwrite src. Move adds no event, because lookups still find the keys (vLLM: move_block_hashes).
func (p *Pool) Move(src, dst int32) {
	tokens := int(p.recs[src].tokens)
	if tokens == 0 {
		return
	}
	keys := p.keysOf(src)
	p.forget(src, false)
	for i := range keys {
		p.insert(dst, &keys[i].Hash, keys[i].Group, tokens)
	}
}

func (p *Pool) keysOf(id int32) []Key {
	keys := []Key{{p.recs[id].hash, p.recs[id].group}}
	for i := p.firstAdditional(id); i >= 0; i = p.additional[i].next {
		keys = append(keys, Key{p.additional[i].hash, p.additional[i].group})
	}
	return keys
}

// Evict removes all keys of block id, which may be in use (vllm/v1/RULES.md §7).
func (p *Pool) Evict(id int32) {
	p.forget(id, p.config.EnableEvents)
}

// Reset removes the keys of all blocks if no block is in use, and reports whether it did. It does not change the order
// of the queue (vllm/v1/RULES.md §7).
func (p *Pool) Reset() bool {
	if p.config.NumGPUBlocks-p.free != 1 {
		return false
	}
	for i := range p.recs {
		p.recs[i].tokens = 0
	}
	clear(p.slots)
	clear(p.first)
	p.additional, p.spare, p.used = p.additional[:0], p.spare[:0], 0
	p.version++
	if p.config.EnableEvents {
		p.events.List = append(p.events.List, Event{Kind: Cleared})
	}
	return true
}
