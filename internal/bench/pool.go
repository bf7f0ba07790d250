package bench

import (
	"math/rand/v2"

	"llmmemory/internal/vllm/blockhash"
	"llmmemory/internal/vllm/v1/pool"
)

const blockSize = 16

// must ends a benchmark whose setup is wrong.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func newPool(blocks int) *pool.Pool {
	p, err := pool.New(pool.Config{NumGPUBlocks: blocks, EnableCaching: true, HashBlockSize: blockSize})
	must(err)
	return p
}

// getFree gets a block and frees it.
func getFree() run {
	p := newPool(1000)
	ids := make([]int32, 0, 1)
	return func(_ timer, n int) {
		for range n {
			ids, _ = p.Get(ids[:0], 1)
			p.Free(ids)
		}
	}
}

// churn gives every block of a pool a key, and then reuses the one that was
// freed first: a key is evicted, another one registered.
func churn(blocks int) run {
	p := newPool(blocks)
	c := hashed(blocks)
	ids, err := p.Get(nil, blocks-1)
	must(err)
	for i, id := range ids {
		p.Register(view(c, i), []int32{id}, 0, 1, blockSize, 0, nil)
	}
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	p.Free(ids)
	ids = ids[:0]
	next := 0
	var one pool.Content
	one.Hashes = make([]blockhash.Hash, 1)
	return func(_ timer, n int) {
		for range n {
			// The key that was just evicted comes back: those of the pool go round.
			ids, _ = p.Get(ids[:0], 1)
			one.Hashes[0] = c[next]
			next++
			if next == len(c) {
				next = 0
			}
			p.Register(&one, ids, 0, 1, blockSize, 0, nil)
			p.Free(ids)
		}
	}
}

// hashed returns n hashes.
func hashed(n int) []blockhash.Hash {
	hashes := make([]blockhash.Hash, n)
	f := blockhash.LE{}
	for i := range hashes {
		f.Sum(&hashes[i], &blockhash.Hash{}, []int32{int32(i)}, nil)
	}
	return hashes
}

func view(hashes []blockhash.Hash, i int) *pool.Content {
	return &pool.Content{Hashes: hashes[i : i+1]}
}
