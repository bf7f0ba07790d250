package kvcache

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
)

func newBenchCache(b *testing.B, blocks int, hash blockhash.Function) *Cache {
	c, err := New(Config{
		NumGPUBlocks: blocks, Groups: []Group{{Kind: Full, BlockSize: 16}}, EnablePrefixCaching: true, Hash: hash, MaxModelLen: 1 << 20,
	})
	require.NoError(b, err)
	return c
}

func benchPrompt(n, seed int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(seed*7919+i*31) & 0xffff
	}
	return tokens
}

func admit(b *testing.B, c *Cache, tokens []int32, reserve int, hit *Hit) *Request {
	r, err := c.Add(Spec{Tokens: tokens})
	require.NoError(b, err)
	r.Reserve(len(tokens) + reserve)
	c.Lookup(r, hit)
	ok, err := c.Allocate(r, &Alloc{NumNewTokens: r.NumTokens() - hit.NumTokens, Hit: hit})
	require.NoError(b, err)
	require.True(b, ok)
	r.NumComputedTokens = r.NumTokens()
	return r
}

// BenchmarkAllocate measures the allocation of one token, for each of 256 running requests in turn. It appends tokens
// while the timer is stopped, so no time for hashing is measured.
func BenchmarkAllocate(b *testing.B) {
	const running, prompt, output = 256, 512, 2048
	c := newBenchCache(b, running*(prompt+output)/16+1, blockhash.LE{})
	var hit Hit
	var all []*Request
	for i := 0; b.Loop(); i++ {
		if i%running == 0 {
			b.StopTimer()
			if i/running%(output-1) == 0 {
				for _, r := range all {
					c.Release(r, Drop, 0)
				}
				all = all[:0]
				for i := range running {
					all = append(all, admit(b, c, benchPrompt(prompt, i), output, &hit))
				}
			}
			for _, r := range all {
				r.Append(int32(i / running))
			}
			b.StartTimer()
		}
		r := all[i%running]
		if ok, err := c.Allocate(r, &Alloc{NumNewTokens: 1}); !ok {
			b.Fatal(err)
		}
		r.NumComputedTokens++
	}
}

func BenchmarkLookup(b *testing.B) {
	c := newBenchCache(b, 4096/16+2, blockhash.LE{})
	var hit Hit
	admit(b, c, benchPrompt(4096, 1), 0, &hit)
	r, err := c.Add(Spec{Tokens: benchPrompt(4096, 1)})
	require.NoError(b, err)
	for b.Loop() {
		c.Lookup(r, &hit)
	}
	require.Equal(b, 4096-16, hit.NumTokens)
}

func BenchmarkHash(b *testing.B) {
	for _, f := range []struct {
		name string
		hash blockhash.Function
	}{{"sha256", blockhash.LE{}}, {"sha256_cbor", blockhash.CBOR("0")}, {"xxh3", blockhash.NewFast()}} {
		b.Run(f.name, func(b *testing.B) {
			c, p := newBenchCache(b, 2, f.hash), benchPrompt(4096, 1)
			for b.Loop() {
				r, err := c.Add(Spec{Tokens: p})
				require.NoError(b, err)
				c.Release(r, Drop, 0)
			}
		})
	}
}
