package kernels_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/testkit/level"
)

// one and many are numbers of multiprocessors, which decide the plan. With one, prefill uses the
// largest blocks. With many, every sequence of more than two partitions is split.
const one, many = 1, 1 << 20

var attentionProblems = map[string]problem{
	"decoding, four heads share a key head": {AttentionShape: shape(kernels.F16, 128, 8, 2, 16), lens: []int{300, 17, 1, 256}, queries: []int{1, 1, 1, 1}},
	"decoding, positive values":             {AttentionShape: shape(kernels.F16, 64, 2, 2, 16), lens: []int{513, 30}, queries: []int{1, 1}, positive: true},
	"prefill of a prompt":                   {AttentionShape: shape(kernels.F16, 64, 3, 1, 32), lens: []int{70, 600}, queries: []int{70, 40}},
	"prefill, positive values":              {AttentionShape: shape(kernels.BF16, 64, 2, 2, 16), lens: []int{290}, queries: []int{33}, positive: true},
	"several queries, 16 heads a key head":  {AttentionShape: shape(kernels.BF16, 96, 16, 1, 16), lens: []int{530, 3}, queries: []int{3, 3}, sinks: true},
	"a window and ALiBi, heads of 80":       {AttentionShape: shape(kernels.F16, 80, 4, 4, 16), lens: []int{333, 17}, queries: []int{33, 2}, window: 100, slopes: true},
	"a window in another partition":         {AttentionShape: shape(kernels.F16, 64, 2, 1, 16), lens: []int{600, 520}, queries: []int{1, 40}, window: 20, sinks: true},
	"a soft cap, bf16":                      {AttentionShape: shape(kernels.BF16, 96, 8, 1, 16), lens: []int{333, 20}, queries: []int{3, 20}, softCap: 5, sinks: true},
	"heads of 256":                          {AttentionShape: shape(kernels.BF16, 256, 4, 1, 16), lens: []int{270}, queries: []int{9}, softCap: 30, slopes: true},
	"bf16, heads of 128, 80 and 64 keys":    {AttentionShape: shape(kernels.BF16, 128, 4, 4, 64), lens: []int{128, 64}, queries: []int{1, 33}},
	"bf16, heads of 80":                     {AttentionShape: shape(kernels.BF16, 80, 5, 5, 16), lens: []int{40}, queries: []int{2}},
	"f16, heads of 96":                      {AttentionShape: shape(kernels.F16, 96, 5, 5, 48), lens: []int{100}, queries: []int{2}},
	"f16, heads of 256":                     {AttentionShape: shape(kernels.F16, 256, 2, 2, 16), lens: []int{258, 1}, queries: []int{1, 1}, positive: true},
	"E4M3, decoding":                        {AttentionShape: shapeFP8(kernels.CacheE4M3, kernels.F16, 128, 8, 2, 16), lens: []int{300, 17, 1, 256}, queries: []int{1, 1, 1, 1}},
	"E4M3, prefill, bf16":                   {AttentionShape: shapeFP8(kernels.CacheE4M3, kernels.BF16, 64, 3, 1, 32), lens: []int{70, 600}, queries: []int{70, 40}, positive: true},
	"E5M2, a window and ALiBi, heads of 80": {AttentionShape: shapeFP8(kernels.CacheE5M2, kernels.F16, 80, 4, 4, 16), lens: []int{333, 17}, queries: []int{33, 2}, window: 100, slopes: true},
	"E4M3, a soft cap and sinks, bf16":      {AttentionShape: shapeFP8(kernels.CacheE4M3, kernels.BF16, 96, 8, 1, 16), lens: []int{333, 20}, queries: []int{3, 20}, softCap: 5, sinks: true},
	"E5M2, heads of 256, bf16":              {AttentionShape: shapeFP8(kernels.CacheE5M2, kernels.BF16, 256, 4, 1, 16), lens: []int{270, 300}, queries: []int{9, 1}},
	"no query":                              {AttentionShape: shape(kernels.F16, 64, 2, 2, 16), lens: []int{20, 9}, queries: []int{0, 9}},
}

// Ensure that attention computes the same outputs as a computation in float64, up to rounding errors. This must be so
// on the GPU and on the CPU, and both in decode and in prefill. On the GPU, the outputs must have the same bits in any
// order of threads, with any plan and with any places of blocks.
func TestAttentionMatchesFloat64AndTheCPU(t *testing.T) {
	g := newGPU(t)
	order := 0
	for name, p := range attentionProblems {
		t.Run(name, func(t *testing.T) {
			if p.HeadSize != 64 {
				level.SkipNormal(t) // for which the emulator lacks the kernels
			}
			n := p.numbers()
			out := p.run(g, n, one)
			p.requireMatches(t, n, decode(p.Type, out))
			p.requireMatches(t, n, p.onCPU(t, n))
			order++
			g.Order(order)
			require.Equal(t, out, p.run(g, n, many), "the plan changes bits")
			p.apart = true
			require.Equal(t, out, p.run(g, n, many), "the kernel that merges changes bits")
			p.blocks++
			require.Equal(t, out, p.run(g, n, one), "the places of blocks change bits")
		})
	}
}

// Ensure that each of the 256 8-bit numbers is read as on the CPU. The sequence has one token, so the output is the
// token's value.
func TestAttentionReadsEveryNumberOf8Bits(t *testing.T) {
	g := newGPU(t)
	for _, cache := range []kernels.CacheType{kernels.CacheE4M3, kernels.CacheE5M2} {
		for _, kind := range types {
			p := problem{AttentionShape: shapeFP8(cache, kind, 64, 4, 4, 16), lens: []int{1}, queries: []int{1}}
			n := p.numbers()
			want := make([]float64, 256)
			for i := range want {
				code := byte(i)
				want[i] = float64(p.cacheType().Load(unsafe.Pointer(&code)))
			}
			n.values = [][][]float64{{want[:64]}, {want[64:128]}, {want[128:192]}, {want[192:]}}
			got := decode(kind, p.run(g, n, many))
			for i, x := range decode(kind, encode(kind, want)) {
				require.True(t, got[i] == x || x != x && got[i] != got[i], "%v %#x is %v, want %v", cache, i, got[i], x)
			}
		}
	}
}

// Ensure that if a key contains a NaN, the outputs of all tokens that attend to this key are NaN. The outputs of the
// other tokens must not be NaN.
func TestAttentionOfKeysOf8BitsThatAreNaN(t *testing.T) {
	g := newGPU(t)
	p := problem{AttentionShape: shapeFP8(kernels.CacheE4M3, kernels.F16, 64, 1, 1, 16), lens: []int{30}, queries: []int{30}}
	n := p.numbers()
	n.keys[0][0][20*64] = math.NaN()
	for i, x := range decode(p.Type, p.run(g, n, one)) {
		require.Equal(t, i/64 >= 20, math.IsNaN(x), "token %d", i/64)
	}
}

// Ensure that the tiles and partitions that pad a plan change nothing. There is no memory for their results, so the
// emulator would see it if they were computed.
func TestPaddingOfDecodingIsLeftOut(t *testing.T) {
	g := newGPU(t)
	p := problem{AttentionShape: shape(kernels.F16, 64, 4, 2, 16), lens: []int{513, 30, 256}, queries: []int{1, 1, 1}}
	n := p.numbers()
	out := p.run(g, n, many)
	p.tiles = 4
	require.Equal(t, out, p.run(g, n, many))
}

// Ensure that outputs have the same bits with each number of warps of a block of prefill.
func TestPrefillWithEachNumberOfWarps(t *testing.T) {
	g := newGPU(t)
	for _, c := range level.First(1, []struct{ headSize, warps int }{{64, 2}, {80, 4}, {96, 1}, {128, 4}, {256, 2}}) {
		t.Run(fmt.Sprintf("heads of %d, %d warps", c.headSize, c.warps), func(t *testing.T) {
			p := problem{AttentionShape: shapeFP8(kernels.CacheE4M3, kernels.F16, c.headSize, 1, 1, 16), lens: []int{70}, queries: []int{70}, warps: c.warps}
			if p.prefillMemory() > g.context.Device().SharedMemory {
				t.Skip("the GPU has too little shared memory")
			}
			n := p.numbers()
			out := p.run(g, n, one)
			p.requireMatches(t, n, decode(p.Type, out))
			p.warps = 0
			require.Equal(t, out, p.run(g, n, one))
		})
	}
}

// Ensure that the outputs of a prompt of 580 tokens have the same bits in one piece, in chunks, and
// one token at a time.
func TestAttentionOfATokenDoesNotDependOnTheChunk(t *testing.T) {
	level.SkipNormal(t)
	g := newGPU(t)
	t.Run("f16", func(t *testing.T) { requireTheSameBitsInChunks(t, g, shape(kernels.F16, 64, 1, 1, 16), 1, 7, 64, 512) })
	t.Run("e4m3", func(t *testing.T) {
		requireTheSameBitsInChunks(t, g, shapeFP8(kernels.CacheE4M3, kernels.BF16, 64, 1, 1, 16), 1, 512)
	})
}

func requireTheSameBitsInChunks(t *testing.T, g *gpu, shape kernels.AttentionShape, chunks ...int) {
	t.Helper()
	const length = 580
	all := problem{AttentionShape: shape, lens: []int{length}, queries: []int{length}}
	n := all.numbers()
	want := all.run(g, n, one)
	row := 2 * all.HeadSize
	for _, chunk := range chunks {
		for start := 0; start < length; start += max(chunk, 37) {
			end := min(start+chunk, length)
			p := all
			p.lens, p.queries = []int{end}, []int{end - start}
			part := numbers{query: n.query[start*64 : end*64], keys: [][][]float64{{n.keys[0][0][:end*64]}}, values: [][][]float64{{n.values[0][0][:end*64]}}}
			require.Equal(t, want[start*row:end*row], p.run(g, part, many), "tokens %d to %d", start, end-1)
		}
	}
}

// Ensure that sequences have the same bits alone and among others.
func TestAttentionOfASequenceDoesNotDependOnTheBatch(t *testing.T) {
	level.SkipNormal(t)
	g := newGPU(t)
	batch := problem{AttentionShape: shape(kernels.BF16, 64, 2, 1, 16)}
	rng := rand.New(rand.NewPCG(3, 3))
	for s := range 256 {
		batch.lens, batch.queries = append(batch.lens, 1+rng.IntN(60)), append(batch.queries, 1)
		if s%40 == 5 {
			batch.lens[s], batch.queries[s] = 270, 1+s%39
		}
	}
	n := batch.numbers()
	want := batch.run(g, n, one)
	starts, _ := batch.starts()
	for _, among := range []int{1, 3, 64} {
		for first := 0; first+among <= 256; first += 85 {
			p, row := batch, 2*64*2
			p.lens, p.queries = batch.lens[first:][:among], batch.queries[first:][:among]
			start, end := int(starts[first]), int(starts[first+among])
			part := numbers{query: n.query[start*128 : end*128], keys: [][][]float64{n.keys[0][first:][:among]}, values: [][][]float64{n.values[0][first:][:among]}}
			require.Equal(t, want[start*row:end*row], p.run(g, part, many), "%d sequences from %d on", among, first)
		}
	}
}

// fewerChecks makes rapid draw 25 problems, unless the command line sets another number. The emulator
// takes about 50 ms for each problem.
func fewerChecks(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	if before := checks.Value.String(); before == checks.DefValue {
		require.NoError(t, checks.Value.Set("25"))
		t.Cleanup(func() { require.NoError(t, checks.Value.Set(before)) })
	}
}

// Ensure that for random problems the kernels' results are close to those in float64. Two plans must give the same
// bits.
func TestAttentionOfRandomProblems(t *testing.T) {
	level.SkipNormal(t)
	g := newGPU(t)
	fewerChecks(t)
	rapid.Check(t, func(r *rapid.T) {
		kv, group := rapid.IntRange(1, 2).Draw(r, "key heads"), rapid.SampledFrom([]int{1, 2, 3, 5, 16}).Draw(r, "group")
		cache := rapid.SampledFrom([]kernels.CacheType{kernels.CacheAuto, kernels.CacheE4M3, kernels.CacheE5M2}).Draw(r, "cache")
		p := problem{AttentionShape: shapeFP8(cache, rapid.SampledFrom(types).Draw(r, "type"), rapid.SampledFrom([]int{64, 80}).Draw(r, "head size"), kv*group, kv,
			16*rapid.IntRange(1, 3).Draw(r, "block"))}
		for range rapid.IntRange(1, 2).Draw(r, "sequences") {
			length := rapid.OneOf(rapid.IntRange(1, 30), rapid.IntRange(250, 262), rapid.IntRange(510, 515)).Draw(r, "length")
			p.lens, p.queries = append(p.lens, length), append(p.queries, rapid.IntRange(1, min(length, 4)).Draw(r, "queries"))
		}
		p.window, p.slopes, p.sinks = rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 300)).Draw(r, "window"), rapid.Bool().Draw(r, "ALiBi"), rapid.Bool().Draw(r, "sinks")
		if rapid.Bool().Draw(r, "capped") {
			p.softCap = float32(rapid.IntRange(1, 60).Draw(r, "soft cap"))
		}
		n := p.numbers()
		out := p.run(g, n, one)
		p.requireMatches(r, n, decode(p.Type, out))
		require.Equal(r, out, p.run(g, n, many))
	})
}

func TestAttentionRefuses(t *testing.T) {
	g := newGPU(t)
	good := shape(kernels.F16, 64, 4, 2, 16)
	device := g.context.Device()
	for _, c := range []struct {
		change func(s *kernels.AttentionShape)
		want   string
	}{
		{func(s *kernels.AttentionShape) { s.HeadSize = 72 }, "attention with heads of 72 elements: there are kernels for 64, 80, 96, 128 and 256"},
		{func(s *kernels.AttentionShape) { s.Heads = 5 }, "attention with 5 heads and 2 key heads: a key head serves a whole number of heads, at most 16"},
		{func(s *kernels.AttentionShape) { s.Heads = 34 }, "attention with 34 heads and 2 key heads: a key head serves a whole number of heads, at most 16"},
		{func(s *kernels.AttentionShape) { s.Cache = 3 }, "attention with keys and values of type 3: there are kernels for CacheAuto, CacheE4M3 and CacheE5M2"},
		{func(s *kernels.AttentionShape) { s.Type = 3 }, "attention of elements of type 3: there are kernels for F16 and BF16"},
		{func(s *kernels.AttentionShape) { s.BlockSize = 8 }, "attention over blocks of 8 tokens: multiples of 16 are possible"},
	} {
		s := good
		c.change(&s)
		_, err := s.Plan(device, []int32{0, 1}, []int32{1}, 0)
		require.EqualError(t, err, c.want)
	}
	_, err := good.Plan(device, []int32{0, 3}, []int32{2}, 0)
	require.EqualError(t, err, "sequence 0 has 2 tokens, 3 of them queries")
	_, err = good.Plan(device, []int32{0}, []int32{2}, 0)
	require.ErrorContains(t, err, "there is one more start than sequences")
	_, err = good.Plan(cuda.Device{Name: "GPU", SharedMemory: 1 << 14}, []int32{0, 1}, []int32{2}, 0)
	require.EqualError(t, err, "attention with heads of 64 elements needs 28928 bytes of shared memory: GPU has 16384")
	plan, err := good.Plan(device, []int32{0, 1}, []int32{2}, 0)
	require.NoError(t, err)
	a := kernels.PagedAttention{AttentionShape: good, Plan: plan, Window: 3}
	require.ErrorContains(t, a.Launch(g.set, g.stream), "a window of 3")
	a.Window, a.QueryStride = 0, 64
	require.ErrorContains(t, a.Launch(g.set, g.stream), "each must be a multiple of 8 and at least 256")
	a.QueryStride, a.SoftCap = 0, -1
	require.EqualError(t, a.Launch(g.set, g.stream), "attention with a soft cap of -1: it must be at least 0, which means none, and at most 1000")
	a.SoftCap, a.Scale = 0, float32(math.NaN())
	require.EqualError(t, a.Launch(g.set, g.stream), "attention with a scale of NaN: it must be finite")
}
