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

var eightBitTypes = []DType{E4M3, E5M2, Int8}

var limits = []struct {
	name       string
	dtypes     []DType
	key, value func(r *rand.Rand, largest float32) float32
	query      float32
	scale      float32 // factor of the batch's scale
	factors    float32 // KeyScale and ValueScale; with Int8 the scales of every token
}{
	{"the largest keys and values", eightBitTypes, atMost, atMost, 1, 1, 1},
	{"the largest keys and values, of all signs", eightBitTypes, signed, signed, 1, 1, 1},
	{"queries of 1e30", eightBitTypes, signed, signed, 1e30, 1, 1},
	{"queries of 1e-30", eightBitTypes, signed, signed, 1e-30, 1, 1},
	{"denormal queries", eightBitTypes, signed, signed, 1e-40, 1e-3, 1},
	{"large factors", eightBitTypes, signed, signed, 1, 1, 1e20},
	{"small factors", eightBitTypes, signed, signed, 1, 1, 1e-20},
	{"the smallest values", []DType{E4M3}, signed, smallest(0x1p-9), 1, 1, 1},
	{"the smallest values", []DType{E5M2}, signed, smallest(0x1p-16), 1, 1, 1},
	{"the smallest keys", []DType{E4M3}, smallest(0x1p-9), signed, 1, 1 << 15, 1},
	{"the smallest keys", []DType{E5M2}, smallest(0x1p-16), signed, 1, 1 << 25, 1},
	{"zeros", eightBitTypes, smallest(0), smallest(0), 0, 1, 1},
}

func atMost(_ *rand.Rand, largest float32) float32 { return largest }

func signed(r *rand.Rand, largest float32) float32 { return largest * float32(2*r.IntN(2)-1) }

func smallest(x float32) func(*rand.Rand, float32) float32 {
	return func(r *rand.Rand, _ float32) float32 { return signed(r, x) }
}

func TestEightBitTypesAtTheirLimits(t *testing.T) {
	level.SkipNormal(t)
	largest := map[DType]float32{E4M3: 448, E5M2: 57344, Int8: 127}
	forEachSet(t, []kernels{fastest}, func(t *testing.T, runner *Runner) {
		for _, c := range limits {
			for _, d := range c.dtypes {
				t.Run(fmt.Sprintf("%s %v", c.name, d), func(t *testing.T) {
					r := rand.New(rand.NewPCG(31, uint64(d)))
					p := newProblem(r, problemSpec{
						shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 128, DType: d},
						heads: 4, lens: []int{530, 16, 33}, queries: []int{1, 1, 20},
						contents: func(*rand.Rand) float32 { return 0 },
					})
					p.setAll(func() float32 { return c.key(r, largest[d]) }, func() float32 { return c.value(r, largest[d]) })
					p.setFactors(c.factors)
					for i := range p.query {
						p.query[i] = c.query * float32(r.NormFloat64())
					}
					p.batch.Scale *= c.scale / max(c.query, 1e-37) / largest[d] / c.factors
					require.NoError(t, runner.Forward(&p.cache, &p.batch))
					requireNear(t, p, f32Bound)
				})
			}
		}
	})
}

func (p *problem) setAll(key, value func() float32) {
	c := &p.cache
	for b := range c.NumBlocks {
		for token := range c.BlockSize {
			for i := range c.HeadSize {
				c.DType.Store(unsafe.Pointer(&c.Key[c.KeyOffset(b, 0, token, i)]), key())
				c.DType.Store(unsafe.Pointer(&c.Value[c.ValueOffset(b, 0, token, i)]), value())
			}
		}
	}
}

func (p *problem) setFactors(x float32) {
	c := &p.cache
	c.KeyScale, c.ValueScale = x, x
	for b := range c.NumBlocks {
		for token := range c.BlockSize {
			if c.DType == Int8 {
				c.Scales(c.KeyScales, b, 0)[token], c.Scales(c.ValueScales, b, 0)[token] = x, x
			}
		}
	}
}

func TestWhatIsNotReachedChangesNoBit(t *testing.T) {
	for _, k := range instructionSets() {
		for i, d := range append(allDTypes, Int8, Int8) {
			layout := allLayouts[max(0, i-len(allDTypes)+1)]
			t.Run(fmt.Sprintf("%v %v %v", k, d, layout), func(t *testing.T) {
				for _, hidden := range []struct {
					name   string
					change func(b *Batch)
					later  bool // rows from token 32 on do not see token 25
				}{
					{"nothing", func(*Batch) {}, false},
					{"window", func(b *Batch) { b.SlidingWindow = 7 }, true},
				} {
					runner := newRunner(t, 1, k)
					const n, heads, size = 40, 3, 48
					p := newProblem(rand.New(rand.NewPCG(33, 1)), problemSpec{
						shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: size, DType: d, Layout: layout}, heads: heads,
						lens: []int{n}, queries: []int{n},
					})
					hidden.change(&p.batch)
					want := outputs(t, runner, p, nil)
					slot := p.batch.blockOf(&p.cache, 0, 25)*16 + 25%16
					p.makeNaN(slot, false)
					p.makeNaN(slot, true)
					got := outputs(t, runner, p, nil)
					requireSameBits(t, want[:25*heads*size], got[:25*heads*size], "before the NaN")
					if hidden.later {
						requireSameBits(t, want[32*heads*size:], got[32*heads*size:], "after the NaN: "+hidden.name)
					}
					for i, v := range got[25*heads*size : 26*heads*size] {
						require.True(t, v != v, "element %d of the row at the NaN", i)
					}
				}
			})
		}
	}
}

func (p *problem) scaleOf(slot int, value bool, x float32) {
	c := &p.cache
	data := c.KeyScales
	if value {
		data = c.ValueScales
	}
	c.Scales(data, slot/16, 0)[slot%16] = x
}

func TestInfiniteValuesOfE5M2(t *testing.T) {
	forEachSet(t, testedSets(), func(t *testing.T, runner *Runner) {
		for _, queries := range []int{1, 20} {
			p := newProblem(rand.New(rand.NewPCG(34, 1)), problemSpec{
				shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32, DType: E5M2}, heads: 2, lens: []int{600},
				queries: []int{queries},
			})
			set := func(token, element int, bits uint8) {
				c := &p.cache
				c.Value[c.ValueOffset(p.batch.blockOf(c, 0, token), 0, token%16, element)] = bits
			}
			set(3, 7, 0x7c)
			set(3, 9, 0xfc)
			set(570, 9, 0x7c)
			require.NoError(t, runner.Forward(&p.cache, &p.batch))
			for row := range 2 * queries {
				out := p.out[row*32:][:32]
				for i, v := range out {
					require.Equal(t, i == 7, math.IsInf(float64(v), 1), "row %d, element %d", row, i)
					require.Equal(t, i == 9, v != v, "row %d, element %d", row, i)
				}
			}
		}
	})
}

func TestNothingOfAnEarlierCallShows(t *testing.T) {
	for _, k := range instructionSets() {
		for _, d := range allDTypes {
			for _, layout := range []Layout{LayoutTile, LayoutFlash} {
				t.Run(fmt.Sprintf("%v %v %v", k, d, layout), func(t *testing.T) {
					make := func(seed uint64, tokens int) *problem {
						return newProblem(rand.New(rand.NewPCG(seed, 1)), problemSpec{
							shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 48, DType: d, Layout: layout}, heads: 2,
							lens: []int{tokens}, queries: []int{2},
						})
					}
					earlier, p := make(35, 48), make(36, 40)
					for slot := range earlier.cache.NumBlocks * 16 {
						earlier.makeNaN(slot, true)
					}
					p.batch.SlidingWindow = 36 // it begins and ends within a tile
					used, fresh := newRunner(t, 1, k), newRunner(t, 1, k)
					outputs(t, used, earlier, nil)
					requireSameBits(t, outputs(t, fresh, p, nil), outputs(t, used, p, nil), "after NaN")
				})
			}
		}
	}
}

func (p *problem) makeNaN(slot int, value bool) {
	nan := float32(math.NaN())
	if p.cache.DType == Int8 {
		p.scaleOf(slot, value, nan)
		return
	}
	for i := range p.cache.HeadSize {
		p.poison(slot, nan, i, value)
	}
}
