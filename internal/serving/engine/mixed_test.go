package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/kvoffload"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

// mixedModel returns a model in the form of Gemma 4. Of a token, layers without a window have twice as many bytes of keys
// and values as the others, and the last two layers have none.
func mixedModel(t *testing.T, pool *parallel.Pool, full []bool) *model.Model {
	const hidden, heads, inter, vocab, perLayer = 64, 4, 48, 256, 8
	rnd := rand.New(rand.NewPCG(29, 11))
	tensor := func(name string, rows, cols int) *weights.Tensor {
		v := make([]float32, rows*cols)
		for i := range v {
			v[i] = float32(rnd.NormFloat64() * 0.3)
		}
		return weights.FromFloats(name, rows, cols, v)
	}
	c := model.Config{Family: "gemma4_text", VocabSize: vocab, HiddenSize: hidden, NumLayers: len(full), NumHeads: heads, NumKVHeads: 2, HeadDim: 8,
		IntermediateSize: inter, MaxModelLen: 1024, NormEps: 1e-5, Activation: model.GatedGELU, NormPlace: model.NormAround, AttentionScale: 1,
		Rope: &model.Rope{Theta: 1000, Dim: 16}, LocalRope: &model.Rope{Theta: 100, Dim: 8}, End: []int32{3},
		SlidingWindow: hybridWindow, Full: full, EmbeddingScale: 8,
		Mixed: &model.Mixed{Full: full, HeadDim: 16, NumKVHeads: 2, Shared: 2, PerLayerDim: perLayer, Vocabulary: vocab}}
	all := []*weights.Tensor{tensor("lm_head.weight", vocab, hidden), tensor("model.embed_tokens.weight", vocab, hidden), tensor("model.norm.weight", 1, hidden),
		tensor("model.embed_tokens_per_layer.weight", vocab, len(full)*perLayer), tensor("model.per_layer_projection_norm.weight", 1, perLayer),
		tensor("model.per_layer_model_projection.weight", len(full)*perLayer, hidden)}
	for i := range full {
		add := func(name string, rows, cols int) {
			all = append(all, tensor(fmt.Sprintf("model.layers.%d.%s.weight", i, name), rows, cols))
		}
		dim := 8
		if full[i] {
			dim = 16
		}
		for _, name := range []string{"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm", "post_per_layer_input_norm"} {
			add(name, 1, hidden)
		}
		add("self_attn.q_proj", heads*dim, hidden)
		add("self_attn.o_proj", hidden, heads*dim)
		add("self_attn.q_norm", 1, dim)
		if c.KVSource(i) == i {
			add("self_attn.k_proj", 2*dim, hidden)
			add("self_attn.v_proj", 2*dim, hidden)
			add("self_attn.k_norm", 1, dim)
		}
		add("mlp.gate_proj", inter, hidden)
		add("mlp.up_proj", inter, hidden)
		add("mlp.down_proj", hidden, inter)
		add("per_layer_input_gate", perLayer, hidden)
		add("per_layer_projection", hidden, perLayer)
		all = append(all, weights.FromFloats(fmt.Sprintf("model.layers.%d.layer_scalar", i), 1, 1, []float32{0.5 + rnd.Float32()}))
	}
	m, err := model.Build(c, weights.Collect(all...), pool, model.Part{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// Ensure that answers are those of the model without an engine if the blocks of some layers have more tokens than those of
// others, and some layers read the keys and values of others. The memory is so small that requests are preempted.
func TestAnswersOfLayersWithDifferentHeads(t *testing.T) {
	for name, full := range map[string][]bool{
		"window first": {false, false, true, false, false, true},
		"full first":   {true, false, false, true, true, false},
		"all full":     {true, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			open := func(pool *parallel.Pool, _ model.Part) *model.Model { return mixedModel(t, pool, full) }
			rnd := rand.New(rand.NewPCG(4, 9))
			var requests []engine.Request
			var want [][]int32
			for i := range 10 {
				r := request(strings.Repeat(story, rnd.IntN(4))+fmt.Sprintf("The code %d of", i%3), 5+rnd.IntN(40))
				r.IgnoreEOS = true
				requests = append(requests, r)
				want = append(want, greedy(t, open, r.Prompt, r.MaxTokens))
			}
			brief := request("The code", hybridWindow-8)
			brief.IgnoreEOS = true
			short := startParts(t, 1, open, func(c *engine.Config) { c.MaxModelLen = hybridWindow }, nil)
			require.Equal(t, greedy(t, open, brief.Prompt, brief.MaxTokens), ask(t, short, brief)[0].ids)
			for _, speculative := range []int{0, 3} {
				counts := &counter{}
				e := startParts(t, 1, open, func(c *engine.Config) {
					c.BlockSize, c.MaxModelLen, c.KVCacheBytes = 8, 208, 46*hybridBlock
					c.MaxNumBatchedTokens, c.MaxNumSeqs, c.NumSpeculativeTokens = 24, 8, speculative
				}, counts)
				for range 2 {
					require.Equal(t, want, together(t, e, requests))
				}
				requireIdle(t, e)
				require.NotZero(t, counts.preempted.Load(), "no request was preempted")
				require.NotZero(t, counts.hits.Load())
			}
		})
	}
}

// Ensure that Check refuses to keep blocks outside the process if layers have different heads, also if no sequence is
// longer than the window.
func TestBlocksOfLayersWithDifferentHeadsAreNotOffloaded(t *testing.T) {
	m := mixedModel(t, newPool(t, 1), []bool{false, false, true, false, false, true})
	for _, longest := range []int{8, 208} {
		c := engine.Config{KVCacheBytes: 1 << 20, MaxModelLen: longest, Offload: &kvoffload.Config{}}
		_, err := c.Check(&m.Config, 1)
		require.ErrorIs(t, err, engine.ErrConfig)
		require.ErrorContains(t, err, "cannot be kept outside the process")
	}
}
