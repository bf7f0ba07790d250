package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/sched"
	"llmmemory/internal/serving/kvoffload"
)

// Ensure that requests wait for the blocks of a claim only until the claim is 2 s old (the constant patience). A
// request that comes after that must not wait at all.
func TestAClaimMakesOthersWaitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startRelayed(t, &relay{}, func(c *Config) {
			c.Hash = blockhash.CBOR("0")
			c.Offload = &kvoffload.Config{Tier: kvoffload.Chain{}, Loads: true}
		})
		another := func() *sequence {
			q := &sequence{stream: &Stream{request: &Request{}}, prompt: 40}
			for i := range q.prompt {
				q.tokens = append(q.tokens, int32(i))
			}
			return q
		}
		first := another()
		require.True(t, e.offload.claim(first, e.offload.hashes(first)[:2]))
		begin := time.Now()
		for range 5 {
			require.Equal(t, sched.Match{}, e.offload.find(another()))
		}
		require.LessOrEqual(t, time.Since(begin), patience)
		e.mu.Lock()
		e.offload.release(first)
		e.mu.Unlock()
		require.NoError(t, e.Close())
	})
}
