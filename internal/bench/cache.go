package bench

import (
	"llmmemory/internal/vllm/blockhash"
	"llmmemory/internal/vllm/v1/kvcache"
)

const (
	promptTokens = 512
	outputTokens = 2048
)

func newCache(blocks int, hash blockhash.Function) *kvcache.Cache {
	c, err := kvcache.New(kvcache.Config{
		NumGPUBlocks: blocks, Groups: []kvcache.Group{{Kind: kvcache.Full, BlockSize: blockSize}},
		EnablePrefixCaching: true, Hash: hash, MaxModelLen: 1 << 20,
	})
	must(err)
	return c
}

func prompt(n, seed int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(seed*7919+i*31) & 0xffff
	}
	return tokens
}

// admit adds a request whose whole prompt is computed.
func admit(c *kvcache.Cache, tokens []int32, hit *kvcache.Hit) *kvcache.Request {
	r, err := c.Add(kvcache.Spec{Tokens: tokens, Reserve: len(tokens) + outputTokens})
	must(err)
	c.Lookup(r, hit)
	ok, err := c.Allocate(r, &kvcache.Alloc{NumNewTokens: r.NumTokens() - hit.NumTokens, Hit: hit})
	must(err)
	if !ok {
		panic("the cache is too small")
	}
	r.NumComputedTokens = r.NumTokens()
	return r
}

// decode measures the allocation of one token for each running request in turn. Appending
// and hashing the tokens is not timed.
func decode(running int) run {
	c := newCache(running*(promptTokens+outputTokens)/blockSize+1, blockhash.LE{})
	var hit kvcache.Hit
	var all []*kvcache.Request
	refill := func() {
		for _, r := range all {
			c.Release(r, kvcache.Drop, 0)
		}
		all = all[:0]
		for i := range running {
			all = append(all, admit(c, prompt(promptTokens, i), &hit))
		}
	}
	refill()
	next, steps := running, 0
	return func(t timer, n int) {
		for range n {
			if next == running {
				t.StopTimer()
				if steps++; steps == outputTokens {
					refill()
					steps = 1
				}
				for _, r := range all {
					r.Append(int32(steps))
				}
				next = 0
				t.StartTimer()
			}
			r := all[next]
			if ok, err := c.Allocate(r, &kvcache.Alloc{NumNewTokens: 1}); !ok {
				panic(err)
			}
			r.NumComputedTokens++
			next++
		}
	}
}

// lookup finds a cached prompt of n tokens.
func lookup(tokens int) run {
	c := newCache(tokens/blockSize+2, blockhash.LE{})
	var hit kvcache.Hit
	admit(c, prompt(tokens, 1), &hit)
	r, err := c.Add(kvcache.Spec{Tokens: prompt(tokens, 1)})
	must(err)
	return func(_ timer, n int) {
		for range n {
			c.Lookup(r, &hit)
		}
		if hit.NumTokens != tokens-blockSize {
			panic("the prompt is not cached")
		}
	}
}

// hashing names all blocks of a prompt of n tokens.
func hashing(tokens int, hash blockhash.Function) run {
	c := newCache(2, hash)
	p := prompt(tokens, 1)
	return func(_ timer, n int) {
		for range n {
			r, err := c.Add(kvcache.Spec{Tokens: p})
			must(err)
			c.Release(r, kvcache.Drop, 0)
		}
	}
}
