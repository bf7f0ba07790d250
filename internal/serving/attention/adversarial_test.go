package attention

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

var optionSets = []struct {
	name   string
	change func(b *Batch)
}{
	{"none", func(*Batch) {}},
	{"alibi", func(b *Batch) { b.AlibiSlopes = []float32{.5, .25, .1, .05, .02, 0} }},
	{"window", func(b *Batch) { b.SlidingWindow = 37 }},
	{"window of 1", func(b *Batch) { b.SlidingWindow = 1 }},
	{"window over partitions", func(b *Batch) { b.SlidingWindow = 600 }},
	{"chunks", func(b *Batch) { b.Chunk = 37 }},
	{"chunks over partitions", func(b *Batch) { b.Chunk = 530 }},
	{"soft cap", func(b *Batch) { b.SoftCap = 2 }},
	{"sinks", func(b *Batch) { b.Sinks = []float32{-3, 0, 1, 2, 4, 40} }},
	{"negative scale", func(b *Batch) { b.Scale = -b.Scale }},
	{"no scale", func(b *Batch) { b.Scale = 0 }},
	{"all", func(b *Batch) {
		b.AlibiSlopes, b.Sinks = []float32{.5, .25, .1, .05, .02, 0}, []float32{-3, 0, 1, 2, 4, 5}
		b.SlidingWindow, b.SoftCap = 300, 10
	}},
}

// contents lists distributions of the numbers in keys, values and queries. Most of them cause large rounding
// errors or special values.
var contents = []struct {
	name string
	make func(r *rand.Rand) float32
}{
	{"normal", func(r *rand.Rand) float32 { return float32(r.NormFloat64()) }},
	{"all equal", func(*rand.Rand) float32 { return 0.5 }},
	{"denormals", func(r *rand.Rand) float32 { return float32(r.NormFloat64()) * 1e-40 }},
	{"one in a hundred is huge", func(r *rand.Rand) float32 {
		if r.IntN(100) == 0 {
			return 300
		}
		return float32(r.NormFloat64())
	}},
	{"logits up to 30", func(r *rand.Rand) float32 { return float32(r.NormFloat64()) * 2.3 }},
	{"signs", func(r *rand.Rand) float32 { return float32(2*r.IntN(2) - 1) }},
}

func TestForwardEqualsTheReference(t *testing.T) {
	n := 55
	if level.Long() {
		n = level.Pick(110, 4000)
	}
	for i := range n {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		s := Shape{
			BlockSize: []int{16, 8, 32, 1 + r.IntN(64)}[r.IntN(4)], NumKVHeads: 1 + r.IntN(2), DType: allDTypes[i%6],
			HeadSize: []int{8, 32, 40, 48, 64, 72, 80, 96, 112, 128, 192, 240, 256, 264, 512, 384, 488}[i%17], Layout: allLayouts[i/6%3],
		}
		if s.Check() != nil {
			s.HeadSize = 64 // vectors of 16 bytes do not divide 8, 40 and 72; int8 ends at 256
		}
		o, c, gap := optionSets[r.IntN(len(optionSets))], contents[max(0, r.IntN(2*len(contents))-len(contents))], 4*r.IntN(9)
		if s.DType != F32 && c.name == "logits up to 30" {
			c = contents[0] // other types add all products in a single sum, whose error is too large for such logits
		}
		p := newProblem(r, problemSpec{
			shape: s, heads: s.NumKVHeads * (1 + r.IntN(9)), lens: []int{513 + r.IntN(100), 1 + r.IntN(40)},
			queries: []int{1 + r.IntN(2)*r.IntN(5), 1}, contents: c.make, gap: gap,
		})
		p.change(o.change)
		bound := f32Bound
		switch {
		case c.name == "one in a hundred is huge":
			bound = 1 // logits reach 10,000, so that only NaN would be an error
		case s.DType != F32:
			bound *= 3 // with a cap of 10, logits in float32 have errors of up to 1e-6
		}
		t.Run(fmt.Sprintf("%d: %s, %s, %v", i, o.name, c.name, s), func(t *testing.T) {
			p.forEach(t, testedSets(), func(t *testing.T, runner *Runner) {
				require.NoError(t, p.stride(runner, gap))
				requireNear(t, p, bound)
			})
		})
	}
}

// change calls set, which sets options of the batch. AlibiSlopes and Sinks need one value for each head. If set gives
// them fewer values, change repeats these values.
func (p *problem) change(set func(b *Batch)) {
	set(&p.batch)
	for _, list := range []*[]float32{&p.batch.AlibiSlopes, &p.batch.Sinks} {
		if *list != nil {
			*list = slices.Repeat(*list, p.batch.NumHeads)[:p.batch.NumHeads]
		}
	}
}

func TestNaNStaysWhereItIsReached(t *testing.T) {
	nan := float32(math.NaN())
	forEachSet(t, instructionSets(), func(t *testing.T, runner *Runner) {
		for _, dtype := range []DType{F32, F16, BF16, E4M3, E5M2} {
			for _, place := range []struct {
				value                bool
				size, element, token int
			}{{false, 32, 5, 30}, {true, 32, 5, 30}, {true, 40, 39, 30}, {true, 48, 37, 30}, {true, 48, 37, 40}} {
				name := fmt.Sprintf("%v value %v, head of %d, token %d", dtype, place.value, place.size, place.token)
				t.Run(name, func(t *testing.T) {
					const n = 41
					r := rand.New(rand.NewPCG(13, 1))
					p := newProblem(r, problemSpec{
						shape: Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: place.size, DType: dtype},
						heads: 4, lens: []int{n, 48}, queries: []int{20, 1}, // unpacked; read in place
					})
					p.poisonUnused(nan, place.element)
					for seq := range 2 {
						p.poison(p.batch.blockOf(&p.cache, seq, place.token)*16+place.token%16, nan, place.element, place.value)
					}
					require.NoError(t, runner.Forward(&p.cache, &p.batch))
					p.eachRow(func(seq, query, head int, out []float32) {
						_, _, position := p.batch.queries(seq)
						if head < 2 && position+query >= place.token {
							require.True(t, out[place.element] != out[place.element], "sequence %d, query %d, head %d", seq, query, head)
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

// poisonUnused stores v in one element of every key and every value that no sequence uses.
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

func (p *problem) poison(slot int, v float32, element int, value bool) {
	c := &p.cache
	block, offset := slot/c.BlockSize, slot%c.BlockSize
	data, i := c.Key, c.KeyOffset(block, 0, offset, element)
	if value {
		data, i = c.Value, c.ValueOffset(block, 0, offset, element)
	}
	c.DType.Store(unsafe.Pointer(&data[i]), v)
}

func TestMinusInfinityWeighsNothing(t *testing.T) {
	forEachSet(t, testedSets(), func(t *testing.T, runner *Runner) {
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
	forEachSet(t, testedSets(), func(t *testing.T, runner *Runner) {
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

// Ensure that NaN and infinity in the query of one head do not change the outputs of the other head. With int8 keys,
// queries are rounded to integers, with a scale that depends on the largest magnitude.
func TestQueriesOfAnySizeBesideInt8Keys(t *testing.T) {
	level.SkipNormal(t)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	forEachSet(t, testedSets(), func(t *testing.T, runner *Runner) {
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
						p.batch.Scale /= c.factor // the logits of head 0 become 0, or so large that one token has all the weight
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

func TestEveryNaNOfAKeyShows(t *testing.T) {
	forEachSet(t, testedSets(), func(t *testing.T, runner *Runner) {
		for _, bits := range []uint32{0x7fc00000, 0xffc00000, 0x7f800001, 0x7fffffff, 0xffffffff} {
			for _, queries := range []int{1, 20} {
				t.Run(fmt.Sprintf("%#x, %d queries", bits, queries), func(t *testing.T) {
					p := newProblem(rand.New(rand.NewPCG(3, 4)), problemSpec{
						shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32, DType: F32}, heads: 2, lens: []int{300},
						queries: []int{queries},
					})
					block := p.batch.blockOf(&p.cache, 0, 37)
					binary.LittleEndian.PutUint32(p.cache.Key[p.cache.KeyOffset(block, 0, 5, 3):], bits)
					require.NoError(t, runner.Forward(&p.cache, &p.batch))
					for i, v := range p.out {
						require.True(t, v != v, "element %d is %v", i, v)
					}
				})
			}
		}
	})
}
