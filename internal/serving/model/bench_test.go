package model_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/benchtest"
	"llmmemory/internal/testkit/weightfile"
)

// benchModel returns the model of the flag -model or, without it, a Llama of 134 million parameters with random weights
// in F16.
func benchModel(b *testing.B, pool *parallel.Pool, options ...model.Option) *model.Model {
	path := *measured
	if path == "" {
		path = filepath.Join(b.TempDir(), "134m.gguf")
		require.NoError(b, weightfile.LlamaFile(path, weightfile.Llama{Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12,
			Inter: 2048, Vocab: 32000, Context: 2048, Type: "F16"}))
	}
	g, err := weights.OpenGGUF(path)
	require.NoError(b, err)
	defer g.Close()
	m, err := model.OpenGGUF(g, pool, model.Part{}, options...)
	require.NoError(b, err)
	return m
}

// decodeBatch returns a batch in which n sequences each decode one token. All have the same 512 tokens of context in
// blocks 1 to 32. For several sequences, CommonPrefix says so, as in a batch of the engine.
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

// requireNoAllocations requires that a batch of n sequences can be computed without allocations. A worker allocates
// memory when it computes for the first time, which can happen in the first measurements. requireNoAllocations
// therefore measures up to 10 times, and requires only that one measurement has no allocations.
func requireNoAllocations(t *testing.T, b *bench, n int) {
	batch := decodeBatch(n)
	batch.Adapters = b.adapters
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

// A reader reads the bytes needed to decode one sequence: all weights, and the keys and values of the sequence's
// context. Each worker reads an equal part.
type reader struct {
	pool   *parallel.Pool
	pieces [][]byte
}

func (r *reader) Do(_, part int) {
	for _, p := range r.pieces {
		share := len(p) / r.pool.Size() &^ 511
		benchtest.Read(p[part*share:][:share])
	}
}

func (r *reader) bytes() (n int) {
	for _, p := range r.pieces {
		n += len(p)
	}
	return n
}

func newReader(m *model.Model, store *kvstore.Store, pool *parallel.Pool, batch *model.Batch) *reader {
	r := &reader{pool: pool, pieces: m.PackedWeights()}
	for i := range m.NumLayers {
		cache := store.Layer(i)
		for _, block := range batch.BlockTables {
			// values are beside the keys
			r.pieces = append(r.pieces, cache.Key[int(block)*cache.BlockStride:][:cache.BlockStride])
		}
	}
	return r
}

// BenchmarkDecodeAgainstReading measures two things in turn: decoding one sequence after 512 tokens, and only reading
// the bytes for this decoding. It reports the median of the ratios, as BenchmarkDecode of kvstore does.
func BenchmarkDecodeAgainstReading(b *testing.B) {
	threads := []int{1}
	if n := runtime.NumCPU(); n > 1 {
		threads = append(threads, n)
	}
	for _, workers := range threads {
		pool, err := parallel.New(workers)
		require.NoError(b, err)
		m := benchModel(b, pool)
		store, err := kvstore.New(kvstore.Config{Shape: m.KVShape(16, attention.F16), Layers: m.NumLayers, NumBlocks: 256},
			pool)
		require.NoError(b, err)
		r, err := model.NewRunner(m, store, pool, nil)
		require.NoError(b, err)
		batch := decodeBatch(1)
		read := newReader(m, store, pool, batch)
		b.Run(fmt.Sprintf("134M/threads=%d", workers), func(b *testing.B) {
			var ratios, decoding, reading []float64
			for b.Loop() {
				begin := time.Now()
				if err := r.Forward(batch); err != nil {
					b.Fatal(err)
				}
				if _, err := r.ComputeLogits(batch, 0, 1); err != nil {
					b.Fatal(err)
				}
				decoded := time.Now()
				pool.Run(workers, read)
				d, t := decoded.Sub(begin).Seconds(), time.Since(decoded).Seconds()
				ratios, decoding, reading = append(ratios, 100*t/d), append(decoding, d), append(reading, t)
			}
			gigabytes := float64(read.bytes()) / 1e9
			b.ReportMetric(gigabytes/median(reading), "read-GB/s")
			b.ReportMetric(gigabytes/median(decoding), "GB/s")
			b.ReportMetric(median(ratios), "%-of-read")
			b.ReportMetric(0, "ns/op")
		})
		require.NoError(b, store.Close())
		require.NoError(b, m.Close())
		pool.Close()
	}
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
