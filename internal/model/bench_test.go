package model_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/half"
	"llmmemory/internal/model"
	"llmmemory/internal/model/weights"
	"llmmemory/internal/parallel"
)

// The shapes that llama.cpp was measured with: Llama with an output matrix of its
// own, about 24 and 134 million parameters.
var benchShapes = []struct {
	name                               string
	hidden, layers, heads, inter, base int
}{
	{"24M", 288, 6, 6, 768, 32000},
	{"134M", 768, 12, 12, 2048, 32000},
}

func randomHalf(rnd *rand.Rand, name string, rows, cols int) *weights.Tensor {
	values := make([]uint16, rows*cols)
	for i := range values {
		values[i] = half.ToF16(float32(rnd.NormFloat64()) * 0.03)
	}
	return weights.FromHalves(name, rows, cols, values)
}

// benchModel has random weights in f16.
func benchModel(b *testing.B, shape int, pool *parallel.Pool) *model.Model {
	s := benchShapes[shape]
	rnd := rand.New(rand.NewPCG(1, 1))
	var all []*weights.Tensor
	add := func(name string, rows, cols int) { all = append(all, randomHalf(rnd, name+".weight", rows, cols)) }
	add("model.embed_tokens", s.base, s.hidden)
	add("lm_head", s.base, s.hidden)
	add("model.norm", 1, s.hidden)
	for l := range s.layers {
		at := fmt.Sprintf("model.layers.%d.", l)
		add(at+"input_layernorm", 1, s.hidden)
		add(at+"post_attention_layernorm", 1, s.hidden)
		for _, n := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
			add(at+"self_attn."+n, s.hidden, s.hidden)
		}
		add(at+"mlp.gate_proj", s.inter, s.hidden)
		add(at+"mlp.up_proj", s.inter, s.hidden)
		add(at+"mlp.down_proj", s.hidden, s.inter)
	}
	m, err := model.Build(model.Config{
		Family: "llama", VocabSize: s.base, HiddenSize: s.hidden, NumLayers: s.layers, NumHeads: s.heads, NumKVHeads: s.heads,
		HeadDim: s.hidden / s.heads, IntermediateSize: s.inter, MaxModelLen: 2048, NormEps: 1e-5, Activation: model.SiLU,
		Rope: &model.Rope{Theta: 10000},
	}, weights.Collect(all...), pool, model.Part{})
	require.NoError(b, err)
	return m
}

// decodeBatch has n sequences after the 512 tokens of blocks 1 to 32. As here, the engine passes to the model that they share these.
func decodeBatch(n int) *model.Batch {
	b := &model.Batch{QueryStart: []int32{0}, Blocks: model.Blocks{TableStride: 33}}
	if n > 1 {
		b.CommonPrefix = 512
	}
	for i := range n {
		b.Tokens, b.Positions = append(b.Tokens, int32(i)), append(b.Positions, 512)
		b.Slots = append(b.Slots, int64(40+i)*16)
		b.QueryStart, b.SeqLens, b.Logits = append(b.QueryStart, int32(i+1)), append(b.SeqLens, 513),
			append(b.Logits, int32(i))
		for k := range 32 {
			b.BlockTables = append(b.BlockTables, int32(1+k))
		}
		b.BlockTables = append(b.BlockTables, int32(40+i))
	}
	return b
}

// A step of a size that was seen before allocates nothing.
func TestForwardAllocatesNothing(t *testing.T) {
	requireNoAllocations(t, newBench(t, families()[0].write(t), 2), 3)
}

// requireNoAllocations computes a batch of n sequences again and again. A worker that has had no
// piece of work so far allocates once; what each step allocates is seen in every measurement.
func requireNoAllocations(t *testing.T, b *bench, n int) {
	batch := decodeBatch(n)
	for i := range batch.BlockTables {
		batch.BlockTables[i] %= numBlocks
	}
	for i := range batch.Positions {
		batch.Positions[i], batch.SeqLens[i], batch.Slots[i] = 200, 201, int64(i)
	}
	batch.CommonPrefix = min(batch.CommonPrefix, 200)
	require.NoError(t, b.runner.Forward(batch))
	_, err := b.runner.ComputeLogits(batch, 0, n)
	require.NoError(t, err)
	each := 1.0
	for measured := 0; each > 0 && measured < 10; measured++ {
		each = testing.AllocsPerRun(20, func() {
			if err := b.runner.Forward(batch); err != nil {
				t.Error(err)
			}
			if _, err := b.runner.ComputeLogits(batch, 0, n); err != nil {
				t.Error(err)
			}
		})
	}
	require.Zero(t, each)
}
