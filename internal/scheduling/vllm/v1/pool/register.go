package pool

import (
	"fmt"

	"llmmemory/internal/scheduling/blockhash"
)

// A Content has the hashes of a request's blocks, and the data from which the hashes are computed.
type Content struct {
	Tokens []int32
	Hashes []blockhash.Hash // one for each complete block of Config.HashBlockSize tokens
	Extras blockhash.Extras
	LoRAID int64
}

// Register gives the full blocks table[start:end], of blockSize tokens each, their keys (vllm/v1/RULES.md §4). It skips
// null blocks. If mask is not nil, Register also skips each block i for which mask[i-start] is false. If a block has
// keys for only a part of its tokens, Register removes these keys. It adds one event for all blocks together, even if
// it skips all of them (vllm/v1/RULES.md §12).
func (p *Pool) Register(c *Content, table []int32, start, end, blockSize int, group uint32, mask []bool) {
	if start >= end {
		return
	}
	scale := blockSize / p.config.HashBlockSize // the key of a block has the last hash in the block
	for i := start; i < end; i++ {
		id := table[i]
		if id == Null || mask != nil && !mask[i-start] {
			continue
		}
		tokens := (i + 1) * blockSize
		h := &c.Hashes[(i+1)*scale-1]
		if oldTokens := int(p.recs[id].tokens); oldTokens != 0 && !p.hasKey(id, h, group) { // a fork may have registered it
			if oldTokens >= tokens {
				panic(fmt.Sprintf("block %d has a key for %d tokens, and is full with %d", id, oldTokens, tokens))
			}
			p.forget(id, p.config.EnableEvents)
		}
		p.insert(id, h, group, tokens)
	}
	if p.config.EnableEvents {
		p.recordStored(c, table, start, end, blockSize, group, mask, 0)
	}
}

// RegisterPart gives a block the key of a prefix that ends inside the block, and returns the key. tokens is the length
// of the prefix: a multiple of the hash size, but not of the block size (vllm/v1/RULES.md §10, "Partial entry rules").
// ok is false for the null block.
func (p *Pool) RegisterPart(c *Content, block int32, tokens int, group uint32) (key Key, ok bool) {
	if block == Null {
		return Key{}, false
	}
	n := tokens / p.config.HashBlockSize
	h := &c.Hashes[n-1]
	known := p.hasKey(block, h, group)
	if oldTokens := int(p.recs[block].tokens); !known && oldTokens != 0 && oldTokens < tokens {
		p.forget(block, p.config.EnableEvents)
	}
	p.insert(block, h, group, tokens)
	if p.config.EnableEvents && !known {
		items := blockhash.Last
		if n == 1 {
			items = 0
		}
		p.recordStored(c, nil, n-1, n, p.config.HashBlockSize, group, nil, items)
	}
	return Key{*h, group}, true
}

// Extend computes the hashes of the complete blocks of size tokens that have no hash yet (vllm/v1/RULES.md §3).
func (c *Content) Extend(f blockhash.Function, size int) {
	n := len(c.Hashes)
	cursor := blockhash.Last
	if n == 0 {
		cursor = 0
	}
	// Sum writes directly into c.Hashes, because a local variable would be allocated on the heap.
	for ; (n+1)*size <= len(c.Tokens); n++ {
		c.Hashes = append(c.Hashes, blockhash.Hash{})
		h := &c.Hashes[n]
		parent := h
		if n > 0 {
			parent = &c.Hashes[n-1]
		} else {
			*h = f.Root()
		}
		extra := c.Extras.Block(n*size, (n+1)*size, &cursor)
		f.Sum(h, parent, c.Tokens[n*size:(n+1)*size], extra)
	}
}
