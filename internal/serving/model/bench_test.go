package model_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/weightfile"
)

// benchModel is a Llama of 134 million parameters with random weights in F16.
func benchModel(b *testing.B, pool *parallel.Pool) *model.Model {
	path := filepath.Join(b.TempDir(), "134m.gguf")
	require.NoError(b, weightfile.LlamaFile(path, weightfile.Llama{Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12,
		Inter: 2048, Vocab: 32000, Context: 2048, Type: "F16"}))
	g, err := weights.OpenGGUF(path)
	require.NoError(b, err)
	defer g.Close()
	m, err := model.OpenGGUF(g, pool, model.Part{})
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

func TestForwardAllocatesNothing(t *testing.T) {
	requireNoAllocations(t, newBench(t, families()[0].write(t), 2), 3)
	requireNoAllocations(t, ggufBench(t, mixedGGUF("llama", nil), model.Int8Activations), 20)
	requireNoAllocations(t, ggufBench(t, mixedGGUF("llama", halves), model.BF16Activations), 20)
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
