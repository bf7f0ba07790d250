package engine_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvoffload"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/weightfile"
)

// latentModel opens a tiny model in the form of DeepSeek V3.
func latentModel(t *testing.T) func(*parallel.Pool, model.Part) *model.Model {
	tinies := weightfile.Tinies()
	i := slices.IndexFunc(tinies, func(tiny weightfile.Tiny) bool { return tiny.Name == "deepseek2, V3" })
	path := filepath.Join(t.TempDir(), "m.gguf")
	require.NoError(t, os.WriteFile(path, tinies[i].GGUF(), 0o644))
	return func(pool *parallel.Pool, p model.Part) *model.Model {
		g, err := weights.OpenGGUF(path)
		require.NoError(t, err)
		m, err := model.OpenGGUF(g, pool, p)
		require.NoError(t, err)
		require.NoError(t, g.Close())
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		return m
	}
}

// Ensure that latent keys survive what happens to blocks: answers are the same alone, and in little memory with
// preemption, hits, several answers to a prompt, drafts, and a tier whose blocks a second engine loads.
func TestAnswersFromLatentKeysAreThoseOfARequestAlone(t *testing.T) {
	const n, blocks = 24, 40
	open := latentModel(t)
	rnd := rand.New(rand.NewPCG(30, 8))
	requests := make([]engine.Request, n)
	for i := range requests {
		requests[i] = randomRequest(rnd)
		requests[i].Adapter = 0
	}
	config := func(c *engine.Config) {
		shape := attention.Shape{BlockSize: 8, NumKVHeads: 1, HeadSize: weightfile.TinyKVRank + weightfile.TinyRope,
			Latent: weightfile.TinyKVRank, Layout: attention.LayoutFlash, DType: attention.BF16}
		c.BlockSize, c.MaxModelLen, c.KVCacheDType = 8, 240, attention.BF16
		c.KVCacheBytes = int64(blocks * weightfile.TinyLayers * shape.BlockBytes())
		c.MaxNumBatchedTokens, c.MaxNumSeqs = 40, 20
		c.Hash = blockhash.CBOR("0")
	}
	alone := startParts(t, 1, open, func(c *engine.Config) {
		config(c)
		c.NoPrefixCaching, c.MaxNumSeqs = true, 4
	}, nil)
	want := make([]string, n)
	for i, r := range requests {
		want[i] = transcript(t, alone, r)
	}
	counts := &counter{}
	l := &ledger{blocks: map[blockhash.Hash][]byte{}, shown: map[blockhash.Hash]bool{}, rnd: rnd}
	loaded := int64(0)
	for _, speculative := range []int{0, 3} {
		e := startParts(t, 1, open, func(c *engine.Config) {
			config(c)
			c.NumSpeculativeTokens, c.Offload = speculative, &kvoffload.Config{Tier: l, Stores: true, Loads: true}
		}, counts)
		got := make([]string, n)
		var wait sync.WaitGroup
		for i, r := range requests {
			wait.Go(func() { got[i] = transcript(t, e, r) })
		}
		wait.Wait()
		require.NoError(t, e.Close())
		requireIdle(t, e)
		require.Equal(t, want, got)
		stats, _ := e.OffloadStats()
		loaded += stats.LoadedBytes
	}
	require.NotZero(t, counts.preempted.Load(), "no request was preempted")
	require.NotZero(t, counts.hits.Load())
	require.NotZero(t, loaded, "nothing was loaded from the tier")
	require.Zero(t, l.changed, "a block has other contents than before")
}

// Ensure that latent keys are refused in int8, which has a scale for a token's whole key.
func TestLatentKeysInInt8AreRefused(t *testing.T) {
	m := latentModel(t)(newPool(t, 1), model.Part{})
	c := engine.Config{KVCacheBytes: 1 << 20, KVCacheDType: attention.Int8}
	_, err := c.Check(&m.Config, 1)
	require.ErrorIs(t, err, engine.ErrConfig)
	require.ErrorContains(t, err, "latent keys of type int8; f32, f16, bf16 and the 8-bit floats are possible")
}
