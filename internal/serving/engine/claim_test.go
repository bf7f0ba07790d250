package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
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

// Ensure that look, for a model with several groups, also returns claims on blocks in the prefix cache. A request for
// such a model claims these blocks, too.
func TestAClaimOnCachedBlocksCountsIfThereAreSeveralGroups(t *testing.T) {
	e := startRelayed(t, &relay{}, func(c *Config) {
		c.Hash = blockhash.CBOR("0")
		c.Offload = &kvoffload.Config{Tier: kvoffload.Chain{}, Loads: true}
	})
	s, err := e.Submit(request(strings.Repeat("some words ", 8), 2))
	require.NoError(t, err)
	q := &sequence{stream: s, prompt: len(s.request.Prompt), tokens: s.request.Prompt}
	_, err = answer(t, s)
	require.NoError(t, err)
	blocks := e.offload.hashes(q)[:(q.prompt-1)/e.config.BlockSize]
	require.True(t, e.offload.claim(q, blocks[:1]))
	have, waitFor, _ := e.offload.look(blocks)
	require.Positive(t, have)
	require.Nil(t, waitFor)
	e.config.groups = make([]kvcache.Group, 2)
	have, waitFor, _ = e.offload.look(blocks)
	require.Zero(t, have)
	require.Same(t, q.tiers.claim, waitFor)
	e.config.groups = nil
	e.mu.Lock()
	e.offload.release(q)
	e.mu.Unlock()
}
