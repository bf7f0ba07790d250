package model_test

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/testkit/weightfile"
)

// prefillBatch returns a batch with a prompt of n tokens.
func prefillBatch(n int) *model.Batch {
	b := &model.Batch{QueryStart: []int32{0, int32(n)}, SeqLens: []int32{int32(n)}, Logits: []int32{int32(n - 1)},
		Blocks: model.Blocks{TableStride: (n + 15) / 16}}
	for i := range n {
		b.Tokens, b.Positions, b.Slots = append(b.Tokens, int32(i)), append(b.Positions, int32(i)), append(b.Slots, int64(16+i))
	}
	for i := range b.TableStride {
		b.BlockTables = append(b.BlockTables, int32(1+i))
	}
	return b
}

// BenchmarkAdapters measures steps with adapters of rank 16 for all matrices, and the same steps without, in turn. It
// reports the median of the ratios of their times. The model is a Llama whose two layers have the sizes of those of
// benchModel.
func BenchmarkAdapters(b *testing.B) {
	pool := newPool(b, runtime.NumCPU())
	file := filepath.Join(b.TempDir(), "14m.gguf")
	require.NoError(b, weightfile.LlamaFile(file, weightfile.Llama{Hidden: 768, Layers: 2, Heads: 12, KVHeads: 12, Inter: 2048,
		Vocab: 1024, Context: 2048, Type: "F16"}))
	g, err := weights.OpenGGUF(file)
	require.NoError(b, err)
	defer g.Close()
	var paths []string
	for seed := range uint64(4) {
		a := madeAdapter{seed: seed, rank: 16, kind: "F16"}
		path, _ := a.gguf(b, "llama", ggufModules(g))
		paths = append(paths, path)
	}
	m, err := model.OpenGGUF(g, pool, model.Part{}, model.WithAdapters(openAdapters(b, paths...)...))
	require.NoError(b, err)
	defer m.Close()
	store, err := kvstore.New(kvstore.Config{Shape: m.KVShape(16, attention.F16), Layers: m.NumLayers, NumBlocks: 256}, pool)
	require.NoError(b, err)
	defer store.Close()
	r, err := model.NewRunner(m, store, pool, nil)
	require.NoError(b, err)
	for _, test := range []struct {
		name      string
		batch     *model.Batch
		sequences int
		adapters  int
	}{
		{"prompt of 512 tokens", prefillBatch(512), 1, 1}, {"1 sequence", decodeBatch(1), 1, 1},
		{"16 sequences, 1 adapter", decodeBatch(16), 16, 1}, {"16 sequences, 4 adapters", decodeBatch(16), 16, 4},
	} {
		b.Run(test.name, func(b *testing.B) {
			var adapters []int32
			for i := range test.sequences {
				adapters = append(adapters, int32(1+i%test.adapters))
			}
			step := func(adapters []int32) float64 {
				test.batch.Adapters = adapters
				begin := time.Now()
				require.NoError(b, r.Forward(test.batch))
				_, err := r.ComputeLogits(test.batch, 0, len(test.batch.Logits))
				require.NoError(b, err)
				return time.Since(begin).Seconds()
			}
			step(adapters)
			var ratios []float64
			for b.Loop() {
				with := step(adapters)
				ratios = append(ratios, with/step(nil))
			}
			b.ReportMetric(median(ratios), "×")
			b.ReportMetric(0, "ns/op")
		})
	}
}
