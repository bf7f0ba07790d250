package kvcache

import "llmmemory/internal/scheduling/blockhash"

// What tests, recordings and llmserve's offloading read, and a scheduler does not.

// CachedPrefix is how many of the blocks of group 0 with these hashes are in the cache, from the first one on.
func CachedPrefix(c *Cache, blocks []blockhash.Hash) int {
	for i := range blocks {
		if _, cached := c.pool.Lookup(&blocks[i], 0); !cached {
			return i
		}
	}
	return len(blocks)
}

// Hashes are the hashes of the request's complete blocks, for reading.
func Hashes(r *Request) []blockhash.Hash { return r.content.Hashes }

// NewBlocks returns the blocks of a group that the last allocation of r gave it: the
// copy of a block that its hit ended in, and those at the end of the table.
// They are appended to dst.
func NewBlocks(dst []int32, r *Request, group int) []int32 {
	p := &r.cache.plans[group]
	if p.copied >= 0 {
		dst = append(dst, p.copied)
	}
	return append(dst, r.tables[group].ids[p.from:]...)
}
