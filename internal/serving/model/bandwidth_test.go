package model_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/benchtest"
)

// A reader reads what decoding one sequence reads: all weights, and the keys and values of its
// context. Each worker reads its share of each piece.
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

// BenchmarkDecodeAgainstReading compares decoding one sequence, after 512 tokens, with reading the
// same bytes by the loop of BenchmarkDecode of kvstore: by turns, and the median of the ratios.
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
