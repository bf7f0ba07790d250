package kvcache

import "llmmemory/internal/scheduling/blockhash"

// Package sched does not call the functions in this file.

// CachedPrefix returns how many of the first blocks of a request are cached in group 0. blocks are the hashes of the
// request's blocks; the search stops at the first hash that is not cached.
func CachedPrefix(c *Cache, blocks []blockhash.Hash) int {
	for i := range blocks {
		if _, cached := c.pool.Lookup(&blocks[i], 0); !cached {
			return i
		}
	}
	return len(blocks)
}

// Hashes returns the hashes of the complete blocks of r. The caller must not change them.
func Hashes(r *Request) []blockhash.Hash { return r.content.Hashes }

// NewBlocks appends to dst what the last Allocate, which must be for r, added to the end of the table of a group, after
// the hit and the blocks for external tokens. If a block was copied because the hit ends inside it, the copy comes
// first.
func NewBlocks(dst []int32, r *Request, group int) []int32 {
	p := &r.cache.plans[group]
	if p.copied >= 0 {
		dst = append(dst, p.copied)
	}
	return append(dst, r.tables[group].ids[p.oldLen:]...)
}
