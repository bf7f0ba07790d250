package pool

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/blockhash"
)

func newBenchPool(t testing.TB, blocks int) *Pool {
	p, err := New(Config{NumGPUBlocks: blocks, EnableCaching: true, HashBlockSize: 16})
	require.NoError(t, err)
	return p
}

func sums(n int) []blockhash.Hash {
	hashes := make([]blockhash.Hash, n)
	f := blockhash.LE{}
	for i := range hashes {
		f.Sum(&hashes[i], &blockhash.Hash{}, []int32{int32(i)}, nil)
	}
	return hashes
}

func BenchmarkGetAndFree(b *testing.B) {
	p := newBenchPool(b, 1000)
	ids := make([]int32, 0, 1)
	for b.Loop() {
		ids, _ = p.Get(ids[:0], 1)
		p.Free(ids)
	}
}

// BenchmarkGetAndFreeWithEviction takes the block that was freed first. Get removes the block's key, and the benchmark
// registers another key for it.
func BenchmarkGetAndFreeWithEviction(b *testing.B) {
	for _, blocks := range []int{1000, 10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("blocks=%d", blocks), func(b *testing.B) {
			p, hashes := newBenchPool(b, blocks), sums(blocks)
			ids, err := p.Get(nil, blocks-1)
			require.NoError(b, err)
			for i, id := range ids {
				p.Register(&Content{Hashes: hashes[i : i+1]}, []int32{id}, 0, 1, 16, 0, nil)
			}
			rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			p.Free(ids)
			ids = ids[:0]
			one, next := Content{Hashes: make([]blockhash.Hash, 1)}, 0
			for b.Loop() {
				// There are only as many keys as blocks, and the loop can run more often. So the first key follows the
				// last key.
				ids, _ = p.Get(ids[:0], 1)
				one.Hashes[0] = hashes[next]
				if next++; next == len(hashes) {
					next = 0
				}
				p.Register(&one, ids, 0, 1, 16, 0, nil)
				p.Free(ids)
			}
		})
	}
}

func TestABlockTakesAtMost96Bytes(t *testing.T) {
	if invariants.Enabled {
		t.Skip("each call checks the whole pool")
	}
	const blocks = 100_000
	hashes := sums(blocks)
	heap, scan := heapBytes()
	p := newBenchPool(t, blocks)
	ids := make([]int32, 1)
	for i := range blocks - 1 {
		got, err := p.Get(ids[:0], 1)
		require.NoError(t, err)
		p.Register(&Content{Hashes: hashes[i : i+1]}, got, 0, 1, 16, 0, nil)
	}
	heapAfter, scanAfter := heapBytes()
	runtime.KeepAlive(hashes)
	runtime.KeepAlive(p)
	require.LessOrEqual(t, heapAfter-heap, 96.0*blocks)
	require.Less(t, scanAfter-scan, 1.0*blocks)
}

func heapBytes() (heap, scan float64) {
	runtime.GC()
	runtime.GC()
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/gc/scan/heap:bytes"}}
	metrics.Read(s)
	return float64(s[0].Value.Uint64()), float64(s[1].Value.Uint64())
}
