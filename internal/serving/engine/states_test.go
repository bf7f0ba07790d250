package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvoffload"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/tokenizer"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

// convolutions returns a model of LFM2 with random weights. Layers 0, 1, 3 and 4 are convolutions over kernel tokens, and
// layers 2 and 5 have attention.
func convolutions(t testing.TB, pool *parallel.Pool, kernel int) *model.Model {
	const hidden, heads, kvHeads, dim, inter, vocab = 64, 8, 4, 8, 96, 256
	rnd := rand.New(rand.NewPCG(5, 8))
	var all []*weights.Tensor
	add := func(name string, rows, cols int) {
		v := make([]float32, rows*cols)
		for i := range v {
			v[i] = float32(rnd.NormFloat64() * 0.4)
		}
		all = append(all, weights.FromFloats(name+".weight", rows, cols, v))
	}
	c := model.Config{
		Family: "lfm2", VocabSize: vocab, HiddenSize: hidden, NumLayers: 6, NumHeads: heads, NumKVHeads: kvHeads, HeadDim: dim,
		IntermediateSize: inter, MaxModelLen: 1024, NormEps: 1e-5, QKNorm: model.HeadNorm, Rope: &model.Rope{Theta: 10000},
		TieEmbeddings: true, End: []int32{3},
		Recurrence: &model.Recurrence{Kind: model.ShortConv, Kernel: kernel, Layers: []bool{true, true, false, true, true, false}},
	}
	add("model.embed_tokens", vocab, hidden)
	add("model.embedding_norm", 1, hidden)
	for i, recurrent := range c.Recurrence.Layers {
		at := fmt.Sprintf("model.layers.%d.", i)
		add(at+"operator_norm", 1, hidden)
		add(at+"ffn_norm", 1, hidden)
		add(at+"feed_forward.w1", inter, hidden)
		add(at+"feed_forward.w3", inter, hidden)
		add(at+"feed_forward.w2", hidden, inter)
		if recurrent {
			add(at+"conv.in_proj", 3*hidden, hidden)
			add(at+"conv.out_proj", hidden, hidden)
			add(at+"conv.conv", hidden, kernel)
			continue
		}
		add(at+"self_attn.q_proj", heads*dim, hidden)
		add(at+"self_attn.k_proj", kvHeads*dim, hidden)
		add(at+"self_attn.v_proj", kvHeads*dim, hidden)
		add(at+"self_attn.out_proj", hidden, heads*dim)
		add(at+"self_attn.q_layernorm", 1, dim)
		add(at+"self_attn.k_layernorm", 1, dim)
	}
	m, err := model.Build(c, weights.Collect(all...), pool, model.Part{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// startConvolutions starts an engine with the model of convolutions.
func startConvolutions(t testing.TB, kernel int, change func(*engine.Config), o engine.Observer) *engine.Engine {
	pool := newPool(t, 2)
	return startModel(t, convolutions(t, pool, kernel), tokenizer.Bytes(1, 2, 3), pool, change, o)
}

// solo returns the greedy answer to a prompt, which it computes with the model and without an engine: first the prompt
// in one piece, then one token after the other. Block 0 is the null block.
func solo(t *testing.T, m *model.Model, pool *parallel.Pool, prompt []int32, maxTokens int) []int32 {
	store, err := kvstore.New(kvstore.Config{Shape: m.KVShape(128, attention.F32), Layers: m.NumLayers, NumBlocks: 5}, pool)
	require.NoError(t, err)
	defer store.Close()
	r, err := model.NewRunner(m, store, pool, nil)
	require.NoError(t, err)
	all := slices.Clone(prompt)
	for computed := 0; len(all) < len(prompt)+maxTokens; {
		n := len(all) - computed
		b := model.Batch{QueryStart: []int32{0, int32(n)}, SeqLens: []int32{int32(len(all))}, Tokens: all[computed:],
			Logits: []int32{int32(n - 1)}, Blocks: model.Blocks{BlockTables: []int32{1, 2, 3, 4}, TableStride: 4}}
		for ; computed < len(all); computed++ {
			b.Positions, b.Slots = append(b.Positions, int32(computed)), append(b.Slots, 128+int64(computed))
		}
		require.NoError(t, r.Forward(&b))
		_, err := r.ComputeLogits(&b, 0, 1)
		require.NoError(t, err)
		all = append(all, r.Largest()[0])
	}
	return all[len(prompt):]
}

// Ensure that answers of a model with states are those of the model alone, to the last bit of every state. The memory is
// so small that requests are preempted. Prompts are computed in chunks, and found in the prefix cache.
func TestAModelWithStatesAnswersAsIfItWereAlone(t *testing.T) {
	const block = 2 * 2 * 8 * 4 * 8 * 4 // bytes of 8 tokens in the two layers of a group
	rnd := rand.New(rand.NewPCG(4, 9))
	var requests []engine.Request
	for i := range 10 {
		r := request(strings.Repeat(story, rnd.IntN(4))+fmt.Sprintf("The code %d of", i%3), 5+rnd.IntN(40))
		r.IgnoreEOS = true
		requests = append(requests, r)
	}
	for _, test := range []struct {
		name   string
		kernel int
		change func(*engine.Config)
		hits   bool
	}{
		{"states at ends of chunks", 3, func(*engine.Config) {}, true},
		{"one step at a time", 3, func(c *engine.Config) { c.NoAsyncScheduling = true; c.KVCacheBytes = 40 * block }, true},
		{"states larger than a block", 12, func(*engine.Config) {}, true},
		{"one state for each request", 3, func(c *engine.Config) { c.NoPrefixCaching = true; c.KVCacheBytes /= 2 }, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			counts, pool := &counter{}, newPool(t, 1)
			m := convolutions(t, pool, test.kernel)
			e := startConvolutions(t, test.kernel, func(c *engine.Config) {
				c.BlockSize, c.MaxModelLen, c.KVCacheBytes = 8, 240, 95*block
				c.MaxNumBatchedTokens, c.MaxNumSeqs = 24, 8
				test.change(c)
			}, counts)
			for range 2 {
				var wait sync.WaitGroup
				got := make([][]int32, len(requests))
				for i, r := range requests {
					wait.Go(func() { got[i] = ask(t, e, r)[0].ids })
				}
				wait.Wait()
				for i, r := range requests {
					require.Equal(t, solo(t, m, pool, r.Prompt, r.MaxTokens), got[i], "request %d", i)
				}
			}
			requireIdle(t, e)
			require.NotZero(t, counts.preempted.Load(), "no request was preempted")
			require.Equal(t, test.hits, counts.hits.Load() > 0)
		})
	}
}

// Ensure that each of several answers to one prompt is the same as if it were generated alone.
func TestSeveralAnswersOfAModelWithStates(t *testing.T) {
	e := startConvolutions(t, 3, func(c *engine.Config) { c.BlockSize = 8 }, nil)
	r := request(story+"The code", 40)
	r.N, r.Temperature, r.Seed = 4, 1.5, 11
	for i, a := range ask(t, e, r) {
		alone := r
		alone.N, alone.Seed = 1, r.Seed+uint64(i)
		require.Equal(t, ask(t, e, alone)[0], a, "answer %d", i)
	}
	requireIdle(t, e)
}

// Ensure that blocks have space for a state, and that what states cannot do is refused by name.
func TestLimitsOfModelsWithStates(t *testing.T) {
	e := startConvolutions(t, 12, func(c *engine.Config) { c.BlockSize, c.KVCacheDType = 4, attention.F32 }, nil)
	require.Equal(t, 12, e.Config().BlockSize, "a state has 11 × 64 numbers, and 4 tokens have 256")
	m := e.Config().Model
	for _, test := range []struct {
		change  func(*engine.Config)
		workers int
		want    string
	}{
		{func(c *engine.Config) { c.NumSpeculativeTokens = 2 }, 1, "a state cannot go back"},
		{func(c *engine.Config) { c.Offload = &kvoffload.Config{} }, 1, "cannot be kept outside the process"},
		{func(*engine.Config) {}, 2, "cannot be shared out"},
	} {
		c := engine.Config{KVCacheBytes: 1 << 20, MaxModelLen: 64}
		test.change(&c)
		_, err := c.Check(&m.Config, test.workers)
		require.ErrorContains(t, err, test.want)
	}
}
