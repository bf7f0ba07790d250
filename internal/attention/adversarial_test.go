package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// optionSets are options that change logits, on decoding and prefill in one batch.
var optionSets = []struct {
	name   string
	change func(b *Batch)
}{
	{"none", func(*Batch) {}},
	{"alibi", func(b *Batch) { b.AlibiSlopes = []float32{.5, .25, .1, .05, .02, 0} }},
	{"window", func(b *Batch) { b.SlidingWindow = 37 }},
	{"window of 1", func(b *Batch) { b.SlidingWindow = 1 }},
	{"window over partitions", func(b *Batch) { b.SlidingWindow = 600 }},
	{"soft cap", func(b *Batch) { b.SoftCap = 2 }},
	{"sinks", func(b *Batch) { b.Sinks = []float32{-3, 0, 1, 2, 4, 40} }},
	{"negative scale", func(b *Batch) { b.Scale = -b.Scale }},
	{"no scale", func(b *Batch) { b.Scale = 0 }},
	{"sparse", func(b *Batch) {
		b.Sparse = &BlockSparse{LocalBlocks: 2, VertStride: 3, BlockSize: 32, HeadSlidingStep: 1}
	}},
	{"sparse by KV heads", func(b *Batch) {
		b.Sparse = &BlockSparse{LocalBlocks: 1, VertStride: 4, BlockSize: 64, HeadSlidingStep: -2, Rank: 1}
	}},
	{"sparse without local blocks",
		func(b *Batch) { b.Sparse = &BlockSparse{VertStride: 7, BlockSize: 32, HeadSlidingStep: 0} }},
	{"all", func(b *Batch) {
		b.AlibiSlopes, b.Sinks = []float32{.5, .25, .1, .05, .02, 0}, []float32{-3, 0, 1, 2, 4, 5}
		b.SlidingWindow, b.SoftCap = 300, 10
		b.Sparse = &BlockSparse{LocalBlocks: 2, VertStride: 3, BlockSize: 32, HeadSlidingStep: 1}
	}},
}

func TestOptionsEqualTheReference(t *testing.T) {
	for i, o := range optionSets {
		dtype := allDTypes[i%len(allDTypes)]
		t.Run(fmt.Sprintf("%s %v", o.name, dtype), func(t *testing.T) {
			r := rand.New(rand.NewPCG(11, uint64(i)))
			p := newProblem(r, problemSpec{
				shape: Shape{BlockSize: 32, NumKVHeads: 2, HeadSize: 32, DType: dtype},
				heads: 6, lens: []int{600, 100, 1, 530}, queries: []int{1, 20, 1, 3},
			})
			o.change(&p.batch)
			p.forEach(t, testedSets(), func(t *testing.T, runner *Runner) {
				for _, v := range []Version{V1, V2} {
					p.batch.Version = v
					require.NoError(t, runner.Forward(&p.cache, &p.batch))
					bound := f32Bound
					if dtype != F32 {
						bound = 3 * f32Bound // what a cap of 10 leaves of float32 is 1e-6
					}
					requireNear(t, p, bound)
				}
			})
		})
	}
}

// hardContents are keys, values and queries that are hard to compute with.
var hardContents = []struct {
	name string
	make func(r *rand.Rand) float32
}{
	{"all equal", func(*rand.Rand) float32 { return 0.5 }},
	{"zeros", func(*rand.Rand) float32 { return 0 }},
	{"denormals", func(r *rand.Rand) float32 { return float32(r.NormFloat64()) * 1e-40 }},
	{"one in a hundred is huge", func(r *rand.Rand) float32 {
		if r.IntN(100) == 0 {
			return 300
		}
		return float32(r.NormFloat64())
	}},
	{"logits up to 12", func(r *rand.Rand) float32 { return float32(r.NormFloat64()) * 1.5 }},
	{"logits up to 30", func(r *rand.Rand) float32 { return float32(r.NormFloat64()) * 2.3 }},
	{"signs", func(r *rand.Rand) float32 { return float32(2*r.IntN(2) - 1) }},
}

func TestHardInputsEqualTheReference(t *testing.T) {
	level.SkipQuick(t)
	for _, h := range hardContents {
		for _, dtype := range []DType{F32, F16, BF16, E5M2} {
			sets := testedSets()
			if dtype != F32 && !level.Long() {
				sets = withoutPortable() // portable code unpacks all types alike
			}
			t.Run(fmt.Sprintf("%s %v", h.name, dtype), func(t *testing.T) {
				r := rand.New(rand.NewPCG(12, 1))
				p := newProblem(r, problemSpec{
					shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 64, DType: dtype},
					heads: 4, lens: []int{1, 15, 16, 17, 511, 512, 513, 1024, 1025}, contents: h.make,
				})
				p.forEach(t, sets, func(t *testing.T, runner *Runner) {
					require.NoError(t, runner.Forward(&p.cache, &p.batch))
					bound := f32Bound
					switch h.name {
					case "one in a hundred is huge":
						bound = 1 // logits of 10,000: only that there is no NaN
					case "logits up to 30":
						if dtype != F32 {
							bound = 2 * f32Bound // their products are one sum
						}
					}
					requireNear(t, p, bound)
				})
			})
		}
	}
}

// Rows that reach a NaN are NaN, and only those, however they are computed.
func TestNaNStaysWhereItIsReached(t *testing.T) {
	nan := float32(math.NaN())
	forEachSet(t, func(t *testing.T, runner *Runner) {
		for _, dtype := range []DType{F32, F16, BF16, E4M3, E5M2} {
			for _, at := range []struct {
				value                bool
				size, element, token int
			}{{false, 32, 5, 30}, {true, 32, 5, 30}, {true, 48, 37, 30}, {true, 48, 37, 40}} {
				t.Run(fmt.Sprintf("%v value %v, head of %d, token %d", dtype, at.value, at.size, at.token), func(t *testing.T) {
					const n = 41
					r := rand.New(rand.NewPCG(13, 1))
					p := newProblem(r, problemSpec{
						shape: Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: at.size, DType: dtype},
						heads: 4, lens: []int{n, n}, queries: []int{20, 1},
					})
					p.poisonUnused(nan, at.element)
					p.poison(p.batch.blockOf(&p.cache, 0, at.token)*16+at.token%16, nan, at.element, at.value)
					require.NoError(t, runner.Forward(&p.cache, &p.batch))
					p.eachRow(func(seq, query, head int, out []float32) {
						_, _, position := p.batch.queries(seq)
						if seq == 0 && head < 2 && position+query >= at.token {
							require.True(t, out[at.element] != out[at.element], "sequence %d, query %d, head %d", seq, query, head)
							return
						}
						for i, v := range out {
							require.False(t, v != v, "sequence %d, query %d, head %d, element %d", seq, query, head, i)
						}
					})
				})
			}
		}
	})
}

// poisonUnused sets an element of every key and value that belongs to no sequence.
func (p *problem) poisonUnused(v float32, element int) {
	c, used := &p.cache, map[int]bool{}
	for seq, n := range p.batch.SeqLens {
		for token := range int(n) {
			used[p.batch.blockOf(c, seq, token)*16+token%16] = true
		}
	}
	for slot := range c.NumBlocks * 16 {
		if !used[slot] {
			p.poison(slot, v, element, true)
			p.poison(slot, v, element, false)
		}
	}
}

// poison sets an element of a key or value of the first KV head.
func (p *problem) poison(slot int, v float32, element int, value bool) {
	c := &p.cache
	block, place := slot/c.BlockSize, slot%c.BlockSize
	data, at := c.Key, c.KeyOffset(block, 0, place, element)
	if value {
		data, at = c.Value, c.ValueOffset(block, 0, place, element)
	}
	c.DType.Store(unsafe.Pointer(&data[at]), v)
}

// A token whose logit is -inf has no weight; a row without any weight is 0.
func TestMinusInfinityWeighsNothing(t *testing.T) {
	forEachSet(t, func(t *testing.T, runner *Runner) {
		r := rand.New(rand.NewPCG(14, 1))
		p := newProblem(r, problemSpec{
			shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32}, heads: 1, lens: []int{40, 600}, queries: []int{3, 1},
			contents: func(r *rand.Rand) float32 { return 1 + r.Float32() },
		})
		for token := range 600 {
			if token < 512 || token%2 == 0 {
				slot := p.batch.blockOf(&p.cache, 1, token)*16 + token%16
				p.poison(slot, float32(math.Inf(-1)), 5, false)
			}
		}
		require.NoError(t, runner.Forward(&p.cache, &p.batch))
		requireNear(t, p, f32Bound)
		for token := range 600 {
			p.poison(p.batch.blockOf(&p.cache, 1, token)*16+token%16, float32(math.Inf(-1)), 5, false)
		}
		require.NoError(t, runner.Forward(&p.cache, &p.batch))
		for _, v := range p.out[3*32 : 4*32] {
			require.Zero(t, v)
		}
	})
}

func TestNarrowOutputsAreThoseOfFloat32Rounded(t *testing.T) {
	forEachSet(t, func(t *testing.T, runner *Runner) {
		for _, d := range []DType{F16, BF16} {
			p := smallProblem(F16)
			narrow := make([]uint16, len(p.query))
			d.StoreAll(unsafe.Pointer(&narrow[0]), p.query)
			d.loadAll(p.query, unsafe.Pointer(&narrow[0]))
			want := outputs(t, runner, p, nil)
			out := make([]uint16, len(narrow))
			b := p.batch
			width := b.NumHeads * p.cache.HeadSize
			bytes := func(x []uint16) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 2*len(x)) }
			b.Query, b.Out = Tensor{d, bytes(narrow), width}, Tensor{d, bytes(out), width}
			require.NoError(t, runner.Forward(&p.cache, &b))
			for i, v := range want {
				var rounded uint16
				d.Store(unsafe.Pointer(&rounded), v)
				require.Equal(t, rounded, out[i])
			}
		}
	})
}

// vLLM's rule for its two kernels.
func TestTheRuleOfVLLMForV1(t *testing.T) {
	for _, c := range []struct {
		name              string
		seqs, heads, most int
		v1                bool
	}{
		{"one partition", 1, 8, 512, true},
		{"two partitions, little work", 1, 8, 513, false},
		{"two partitions, 512 rows", 16, 32, 513, false},
		{"two partitions, more than 512 rows", 17, 32, 513, true},
		{"the longest that V1 takes", 17, 32, 8192, true},
		{"longer", 17, 32, 8193, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := Batch{NumHeads: c.heads, SeqLens: make([]int32, c.seqs)}
			b.SeqLens[0] = int32(c.most)
			require.Equal(t, c.v1, ruleV1(&b))
		})
	}
}

// A fuzzed shape, with gaps between blocks and between rows, equals the reference, or
// is refused.
func FuzzShapes(f *testing.F) {
	f.Add(uint64(1), uint8(2), uint8(4), uint8(64), uint8(16), uint16(700), uint8(3), uint8(1), uint8(0), uint8(0))
	f.Add(uint64(2), uint8(1), uint8(7), uint8(40), uint8(24), uint16(33), uint8(33), uint8(5), uint8(2), uint8(9))
	f.Add(uint64(3), uint8(3), uint8(1), uint8(128), uint8(1), uint16(17), uint8(1), uint8(3), uint8(1), uint8(3))
	f.Add(uint64(4), uint8(1), uint8(3), uint8(64), uint8(15), uint16(600), uint8(0), uint8(5), uint8(0), uint8(1))
	f.Fuzz(func(t *testing.T, seed uint64, kvHeads, group, size, block uint8, n uint16, queries, dtype, layout,
		gap uint8) {
		s := Shape{
			BlockSize: int(block%64) + 1, NumKVHeads: int(kvHeads%3) + 1, HeadSize: int(size),
			DType: DType(dtype % 6), Layout: Layout(layout % 3),
		}
		if s.Check() != nil {
			return
		}
		tokens := int(n%1200) + 1
		r := rand.New(rand.NewPCG(seed, 1))
		p := newProblem(r, problemSpec{
			shape: s, heads: s.NumKVHeads * (int(group%9) + 1), lens: []int{tokens, 5},
			queries: []int{1 + int(queries)%min(tokens, 40), 2},
			gap:     4 * int(gap),
		})
		runner := newRunner(t, 2)
		for _, k := range instructionSets()[1:] {
			runner.kernels = k
			require.NoError(t, p.stride(runner, int(gap)))
			requireNear(t, p, 2*f32Bound)
		}
	})
}

// Queries of int8 keys are rounded to integers. Their size does not matter, and NaN and
// infinity show only in their own head.
func TestQueriesOfAnySizeBesideInt8Keys(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	forEachSet(t, func(t *testing.T, runner *Runner) {
		for _, c := range []struct {
			name   string
			factor float32 // of head 1's query
			first  float32 // element 3 of head 1's query, if not 0
			nan    bool
		}{
			{"zero", 0, 0, false},
			{"denormal", 0x1p-140, 0, false},
			{"small", 0x1p-90, 0, false},
			{"large", 0x1p100, 0, false},
			{"NaN", 1, nan, true},
			{"infinite", 1, -inf, true},
		} {
			t.Run(c.name, func(t *testing.T) {
				for _, queries := range []int{1, 20} { // tile by tile, and unpacked
					p := newProblem(rand.New(rand.NewPCG(15, 1)), problemSpec{
						shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 48, DType: Int8}, heads: 2, lens: []int{600},
						queries: []int{queries},
					})
					for i := range p.query {
						if i/48%2 == 1 {
							p.query[i] *= c.factor
						}
					}
					if c.factor > 0x1p-100 {
						p.batch.Scale /= c.factor // then head 0's logits are 0, or its weights one token's
					}
					if c.first != 0 {
						p.query[48+3] = c.first
					}
					require.NoError(t, runner.Forward(&p.cache, &p.batch))
					if c.nan {
						for i, v := range p.out {
							require.Equal(t, i/48 == 1, v != v, "element %d", i)
						}
						continue
					}
					requireNear(t, p, f32Bound)
				}
			})
		}
	})
}
