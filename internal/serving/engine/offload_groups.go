package engine

import (
	"time"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/pool"
	"llmmemory/internal/scheduling/vllm/v1/sched"
)

// keyOf returns the hash under which tiers have the block of a group.
func keyOf(hash blockhash.Hash, group int) blockhash.Hash {
	hash[len(hash)-1] ^= byte(group)
	return hash
}

func keysOf(blocks []blockhash.Hash, group int) []blockhash.Hash {
	keys := make([]blockhash.Hash, len(blocks))
	for i, b := range blocks {
		keys[i] = keyOf(b, group)
	}
	return keys
}

// maxStatesSought is the largest number of ends of blocks at which findIn looks for a state.
const maxStatesSought = 256

// findIn returns the number of leading blocks that can be loaded from the tiers. A model with states needs the blocks of
// all groups with keys and values, and the states after the last of these blocks.
func (o *offload) findIn(blocks []blockhash.Hash, compute time.Duration) int {
	groups := o.engine.config.groups
	if len(groups) == 1 {
		return o.Find(blocks, compute)
	}
	n := len(blocks)
	for g := range groups {
		if groups[g].Kind != kvcache.Mamba {
			n = o.Find(keysOf(blocks[:n], g), compute)
		}
	}
	for last := max(0, n-maxStatesSought); n > last; n-- {
		if o.hasStates(blocks[n-1]) {
			return n
		}
	}
	return 0
}

func (o *offload) hasStates(block blockhash.Hash) bool {
	for g, group := range o.engine.config.groups {
		if group.Kind == kvcache.Mamba && o.Find([]blockhash.Hash{keyOf(block, g)}, 0) == 0 {
			return false
		}
	}
	return true
}

// toLoad returns the blocks to load for a request, and their keys: first the states after the last of the external
// tokens, then the blocks of keys and values. It leaves out blocks before a window.
func (o *offload) toLoad(q *sequence, l sched.Loading) (ids []int32, keys []blockhash.Hash) {
	e, size := o.engine, o.engine.config.BlockSize
	start, end := l.NumComputedTokens/size, (l.NumComputedTokens+l.NumExternalTokens)/size
	blocks := o.hashes(q)[start:end]
	add := func(states bool) {
		for g, group := range e.config.groups {
			if (group.Kind == kvcache.Mamba) != states {
				continue
			}
			table, err := e.sched.Monitor.Table(nil, l.ID, g)
			must(err)
			for i, id := range table[start:end] {
				if id != pool.Null && (!states || i == end-start-1) {
					ids, keys = append(ids, id), append(keys, keyOf(blocks[i], g))
				}
			}
		}
	}
	add(true)
	add(false)
	return ids, keys
}

// addFull collects the blocks of q up to the given number that were not offered to the tiers yet. Of the states, these
// are those in the prefix cache.
func (o *offload) addFull(q *sequence, blocks int) {
	e, hashes := o.engine, o.hashes(q)
	full := min(blocks, len(hashes))
	for g := range q.tables {
		full = min(full, len(q.tables[g]))
	}
	for ; q.tiers.offered < full; q.tiers.offered++ {
		k := q.tiers.offered
		for g, table := range q.tables {
			if id := table[k]; id != pool.Null && (e.config.groups[g].Kind != kvcache.Mamba || o.cached(id, g, k)) {
				o.full = append(o.full, fullBlock{keyOf(hashes[k], g), id})
			}
		}
	}
}

// cached reports whether a block has the state after block k of a sequence for later prompts.
func (o *offload) cached(id int32, group, k int) (cached bool) {
	o.engine.sched.Monitor.Inspect(func(c *kvcache.Cache) {
		key, tokens, ok := c.Pool.Primary(id)
		cached = ok && int(key.Group) == group && tokens == (k+1)*o.engine.config.BlockSize
	})
	return cached
}
