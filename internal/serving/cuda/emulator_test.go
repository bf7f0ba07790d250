package cuda_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/half"
)

const nan = ^uint32(0)

// blank returns memory for n words, all NaN.
func (g *gpu) blank(n int) *cuda.Memory {
	g.t.Helper()
	m, err := g.context.Alloc(4 * n)
	require.NoError(g.t, err)
	return m
}

// Ensure that mma computes the matrix product, with operands loaded by cp.async and ldmatrix.
func TestMMAMatchesFloat64(t *testing.T) {
	g := newGPU(t)
	for _, c := range []struct {
		kernel string
		encode func(float32) uint16
		decode func(uint16) float32
	}{{"multiply_f16", half.ToF16, half.FromF16}, {"multiply_bf16", half.ToBF16, half.FromBF16}} {
		t.Run(c.kernel, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			matrix := func(n int) (words []uint32, numbers []float64) {
				for range n / 2 {
					low, high := c.encode(float32(rng.NormFloat64())), c.encode(float32(rng.NormFloat64()))
					words = append(words, uint32(low)|uint32(high)<<16)
					numbers = append(numbers, float64(c.decode(low)), float64(c.decode(high)))
				}
				return words, numbers
			}
			aw, a := matrix(16 * 16)
			bw, b := matrix(8 * 16)
			sums := make([]float64, 16*8)
			for i := range sums {
				sums[i] = float64(float32(rng.NormFloat64()))
			}
			out := g.blank(16 * 8)
			require.NoError(t, g.run(c.kernel, cuda.Shape{X: 1, Threads: 32, Shared: 768}, out, g.memory(aw...), g.memory(bw...), g.memory(bitsOf(sums)...)))
			for i, got := range g.words(out) {
				want := sums[i]
				for k := range 16 {
					want += a[i/8*16+k] * b[i%8*16+k]
				}
				require.InDelta(t, want, float64(math.Float32frombits(got)), 1e-6, "element %d", i)
			}
		})
	}
}

func TestLdmatrixTransposes(t *testing.T) {
	g := newGPU(t)
	words := make([]uint32, 4*8*8/2)
	for i := range words {
		words[i] = uint32(2*i) | uint32(2*i+1)<<16
	}
	out := g.blank(4 * 32)
	require.NoError(t, g.run("transpose", cuda.Shape{X: 1, Threads: 32}, out, g.memory(words...)))
	for i, got := range g.words(out) {
		matrix, row, column := i/32, i%32/4, i%4*2 // of the transposed matrix
		low, high := matrix*64+column*8+row, matrix*64+(column+1)*8+row
		require.Equal(t, uint32(low)|uint32(high)<<16, got, "register %d of lane %d", matrix, i%32)
	}
}

func TestShuffles(t *testing.T) {
	g := newGPU(t)
	out := g.blank(96)
	require.NoError(t, g.run("shuffles", cuda.Shape{X: 1, Threads: 32}, out))
	got := g.words(out)
	for lane := range uint32(32) {
		require.Equal(t, 100+(lane^5), got[lane], "shfl_xor")
		source := lane + 3
		if source > 31 {
			source = lane
		}
		require.Equal(t, 100+source, got[32+lane], "shfl_down")
		require.Equal(t, uint32(107), got[64+lane], "shfl")
	}
}

func TestThreadsAndBlocksHaveTheirNumbers(t *testing.T) {
	g := newGPU(t)
	out := g.blank(2 * 3 * 2 * 64)
	for order := range 3 {
		g.Order(order)
		require.NoError(t, g.run("numbers", cuda.Shape{X: 2, Y: 3, Z: 2, Threads: 64}, out))
		for i, got := range g.words(out) {
			require.Equal(t, uint32(i/64*1000+i%64/32*100+i%32), got)
		}
	}
}

// Ensure that the last block of a grid sees what the other blocks wrote, in each emulated order of
// blocks.
func TestTheLastBlockAddsTheParts(t *testing.T) {
	g := newGPU(t)
	for order := range 4 {
		g.Order(order)
		sum := g.blank(1)
		require.NoError(t, g.run("last_block", cuda.Shape{X: 5, Threads: 32}, sum, g.blank(5*32), g.memory(0)))
		require.Equal(t, []uint32{5*(31*32/2) + 32*(4*5/2)}, g.words(sum))
	}
}

// Ensure that in one of two orders of threads, a missing barrier changes the result.
func TestAMissingBarrierIsSeenInSomeOrder(t *testing.T) {
	g := newGPU(t)
	for _, c := range []struct {
		kernel       string
		threads, far int
	}{{"no_barrier", 64, 32}, {"no_warp_barrier", 32, 1}} {
		mistakes := 0
		for order := range 2 {
			g.Order(order)
			out := g.blank(c.threads)
			require.NoError(t, g.run(c.kernel, cuda.Shape{X: 1, Threads: c.threads}, out))
			for i, got := range g.words(out) {
				if got != uint32((i+c.far)%c.threads) {
					mistakes++
				}
			}
		}
		require.Positive(t, mistakes, c.kernel)
	}
}

// Ensure that the emulator notices mistakes and says what is wrong.
func TestMistakesInKernelsAreReported(t *testing.T) {
	for _, c := range []struct {
		name, kernel string
		threads      int
		arguments    func(g *gpu) []any
		says         string
	}{
		{"a read after the end", "read_at", 32, func(g *gpu) []any { return []any{g.blank(1), g.blank(64), int32(64)} },
			"read_at: a kernel accesses 0 bytes after the end of an allocation of 256 bytes"},
		{"a read before the begin", "read_at", 32, func(g *gpu) []any { return []any{g.blank(1), g.blank(16384), int32(-1)} },
			"read_at: a kernel accesses 4 bytes before an allocation of 65536 bytes"},
		{"a write a little after the end", "write_at", 32, func(g *gpu) []any { return []any{g.blank(10), int32(10)} },
			"write_at: a kernel wrote 0 bytes after the end of an allocation of 40 bytes"},
		{"a write before the begin", "write_at", 32, func(g *gpu) []any { return []any{g.blank(10), int32(-1)} },
			"write_at: a kernel wrote 4 bytes before an allocation of 40 bytes"},
		{"lanes that do different things", "unlike_lanes", 32, func(g *gpu) []any { return []any{g.blank(32)} },
			"unlike_lanes: block 0 0 0, thread 16: shfl_xor, while lanes of the same warp wait in warp_barrier"},
		{"lanes that return early", "missing_lanes", 32, func(g *gpu) []any { return []any{g.blank(32)} },
			"missing_lanes: thread 0 waits in shfl_xor: 16 of 32 lanes have come, the others have returned or wait elsewhere"},
		{"a barrier that some threads do not reach", "barrier_and_shuffle", 64, func(g *gpu) []any { return []any{g.blank(32)} },
			"barrier_and_shuffle: thread 0 waits in barrier for threads that wait elsewhere"},
		{"a copy that is not waited for", "no_wait", 32, func(g *gpu) []any { return []any{g.blank(1), g.blank(4)} },
			"no_wait: thread 0 returns without waiting for its cp_async16"},
		{"16 bytes that are not aligned", "unaligned", 32, func(g *gpu) []any { return []any{g.blank(4), g.blank(16)} },
			"which is not a multiple of 16"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGPU(t)
			err := g.run(c.kernel, cuda.Shape{X: 1, Threads: c.threads, Shared: 16}, c.arguments(g)...)
			require.ErrorContains(t, err, "CUDA_ERROR_ILLEGAL_ADDRESS (700)")
			require.Contains(t, g.Failure(), c.says)
			g.Forget()
			g.begin()
		})
	}
}

// Ensure that unwritten memory reads as NaN. This includes shared memory, and the target of an asynchronous copy before
// the kernel has waited for it.
func TestWhatWasNotWrittenIsNaN(t *testing.T) {
	g := newGPU(t)
	out := g.memory(0, 0, 1)
	require.NoError(t, g.run("uninitialized", cuda.Shape{X: 1, Threads: 32}, out))
	require.Equal(t, []uint32{nan, 0, 1}, g.words(out))
	require.NoError(t, g.run("read_before_wait", cuda.Shape{X: 1, Threads: 32, Shared: 16}, out, g.memory(1, 2, 3, 4)))
	require.Equal(t, []uint32{nan, 3, 0}, g.words(out))
	require.Equal(t, []uint32{nan, nan}, g.words(g.blank(2)))
}
