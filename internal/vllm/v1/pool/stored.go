package pool

import "llmmemory/internal/vllm/blockhash"

// recordStored writes the event of one Register call.
func (p *Pool) recordStored(c *Content, table []int32, from, to, blockSize int, group uint32, mask []bool) {
	v := &p.events
	scale := blockSize / p.config.HashBlockSize
	e := p.stored(c, group, blockSize)
	if from > 0 {
		e.HasParent, e.Parent = true, c.Hashes[from*scale-1]
	}
	e.tokens = v.addTokens(c.Tokens[from*blockSize : to*blockSize])
	e.hashes = span{len(v.hashes), len(v.hashes)}
	var at blockhash.Cursor
	for i := from; i < to; i++ {
		if table[i] == Null || mask != nil && !mask[i-from] {
			continue
		}
		v.addBlock(&e, &c.Hashes[(i+1)*scale-1], c.Extras.Block(i*blockSize, (i+1)*blockSize, &at))
	}
	v.List = append(v.List, e)
}

// recordPart writes the event of a partial entry at the end of hash n: one hash
// and the tokens it covers.
func (p *Pool) recordPart(c *Content, n int, group uint32) {
	v := &p.events
	size := p.config.HashBlockSize
	start, end := (n-1)*size, n*size
	e := p.stored(c, group, size)
	var at blockhash.Cursor
	if n > 1 {
		e.HasParent, e.Parent = true, c.Hashes[n-2]
		at = blockhash.Last
	}
	e.tokens = v.addTokens(c.Tokens[start:end])
	e.hashes = span{len(v.hashes), len(v.hashes)}
	v.addBlock(&e, &c.Hashes[n-1], c.Extras.Block(start, end, &at))
	v.List = append(v.List, e)
}

// ReportHit records a Stored event for the first blocks of blockSize tokens that a lookup found
// (vllm/v1/RULES.md §12, report mode "full"). A last block that is hit only in part is not
// reported.
func (p *Pool) ReportHit(c *Content, blocks, blockSize int, group uint32) {
	scale := blockSize / p.config.HashBlockSize
	blocks = min(blocks, len(c.Hashes)/scale)
	if !p.config.EnableEvents || blocks == 0 {
		return
	}
	v := &p.events
	e := p.stored(c, group, blockSize)
	e.tokens = v.addTokens(c.Tokens[:blocks*blockSize])
	e.hashes = span{len(v.hashes), len(v.hashes)}
	var at blockhash.Cursor
	for i := range blocks {
		v.addBlock(&e, &c.Hashes[(i+1)*scale-1], c.Extras.Block(i*blockSize, (i+1)*blockSize, &at))
	}
	v.List = append(v.List, e)
}

func (p *Pool) stored(c *Content, group uint32, blockSize int) Event {
	return Event{Kind: Stored, Group: group, BlockSize: blockSize, LoRA: c.Extras.LoRA, LoRAID: c.LoRAID}
}

// addBlock adds one block to e, which is the event that is being written.
func (v *Events) addBlock(e *Event, h *blockhash.Hash, extra []blockhash.Key) {
	v.addHash(h)
	if e.hashes.to++; extra == nil && e.Extra == nil {
		return
	}
	for len(e.Extra) < e.hashes.to-e.hashes.from-1 {
		e.Extra = append(e.Extra, nil) // of blocks before the first that has some
	}
	e.Extra = append(e.Extra, extra)
}
