package pool

import "llmmemory/internal/scheduling/blockhash"

// recordStored records a Stored event for blocks from to to-1 of blockSize tokens, except null blocks of a
// table and those that mask, which starts at from, leaves out. items is where the first block looks for
// its items.
func (p *Pool) recordStored(c *Content, table []int32, from, to, blockSize int, group uint32, mask []bool, items blockhash.Cursor) {
	v := &p.events
	scale := blockSize / p.config.HashBlockSize
	e := Event{Kind: Stored, Group: group, BlockSize: blockSize, LoRA: c.Extras.LoRA, LoRAID: c.LoRAID}
	if from > 0 {
		e.HasParent, e.Parent = true, c.Hashes[from*scale-1]
	}
	e.tokens = v.addTokens(c.Tokens[from*blockSize : to*blockSize])
	e.hashes = span{len(v.hashes), len(v.hashes)}
	for i := from; i < to; i++ {
		if table != nil && table[i] == Null || mask != nil && !mask[i-from] {
			continue
		}
		v.addBlock(&e, &c.Hashes[(i+1)*scale-1], c.Extras.Block(i*blockSize, (i+1)*blockSize, &items))
	}
	v.List = append(v.List, e)
}

// recordPart records the event of a partial entry at the end of hash n: one hash
// and the tokens it covers.
func (p *Pool) recordPart(c *Content, n int, group uint32) {
	items := blockhash.Last
	if n == 1 {
		items = 0
	}
	p.recordStored(c, nil, n-1, n, p.config.HashBlockSize, group, nil, items)
}

// ReportHit records a Stored event for the first blocks of blockSize tokens that a lookup found
// (vllm/v1/RULES.md §12, report mode "full"). A last block that is hit only in part is not
// reported.
func (p *Pool) ReportHit(c *Content, blocks, blockSize int, group uint32) {
	blocks = min(blocks, len(c.Hashes)/(blockSize/p.config.HashBlockSize))
	if p.config.EnableEvents && blocks > 0 {
		p.recordStored(c, nil, 0, blocks, blockSize, group, nil, 0)
	}
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
