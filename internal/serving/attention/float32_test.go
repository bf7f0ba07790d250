package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func (p *problem) set(seq, token, element int, v float32, value bool) {
	c := &p.cache
	p.poison(p.batch.blockOf(c, seq, token)*c.BlockSize+token%c.BlockSize, v, element, value)
}

func (p *problem) eachToken(change func(seq, token int)) {
	for seq, n := range p.batch.SeqLens {
		for token := range int(n) {
			change(seq, token)
		}
	}
}

var float32Kinds = []struct {
	name   string
	change func(p *problem, r *rand.Rand)
}{
	{"random", func(*problem, *rand.Rand) {}},
	{"all logits equal, values with no end in binary", func(p *problem, _ *rand.Rand) {
		p.equalKeys()
		p.eachToken(func(seq, token int) {
			for i := range p.cache.HeadSize {
				p.set(seq, token, i, 0.1*float32(i+1), true)
			}
		})
	}},
	{"all logits nearly equal", func(p *problem, r *rand.Rand) {
		p.equalKeys()
		p.eachToken(func(seq, token int) {
			p.set(seq, token, 1, 0.3+r.Float32()/100, false)
		})
	}},
	{"one logit huge, with a value of 0", func(p *problem, r *rand.Rand) {
		p.equalKeys()
		p.eachToken(func(seq, token int) {
			sign := float32(-1)
			if token == 3 {
				sign = 1
			}
			for i := range p.cache.HeadSize {
				p.set(seq, token, i, sign*(0.3+r.Float32()/10), false)
				if token == 3 && i%2 == 0 {
					p.set(seq, token, i, 0, true)
				}
			}
		})
	}},
	{"one element makes the logit", func(p *problem, r *rand.Rand) {
		p.setQueries(0, 60)
		p.eachToken(func(seq, token int) { p.set(seq, token, 0, 40+r.Float32(), false) })
	}},
	{"outputs cancel", func(p *problem, r *rand.Rand) {
		p.equalKeys()
		p.eachToken(func(seq, token int) {
			p.set(seq, token, 1, 0.3+r.Float32()/100, false)
			for i := range p.cache.HeadSize {
				p.set(seq, token, i, float32(1-token%2*2)*(1+r.Float32()/1000), true)
			}
		})
	}},
	{"products cancel", func(p *problem, r *rand.Rand) {
		last := p.cache.HeadSize - 1
		p.setQueries(0, 60)
		p.setQueries(last, 60)
		p.eachToken(func(seq, token int) {
			p.set(seq, token, 0, 40+r.Float32()/10, false)
			p.set(seq, token, last, -40-r.Float32()/10, false)
		})
	}},
}

func (p *problem) equalKeys() {
	for i := range p.query {
		p.query[i] = 1 + float32(i%7)/10
	}
	p.eachToken(func(seq, token int) {
		for i := range p.cache.HeadSize {
			p.set(seq, token, i, 0.3+float32(i%5)/9, false)
		}
	})
}

func (p *problem) setQueries(element int, v float32) {
	for i := element; i < len(p.query); i += p.cache.HeadSize {
		p.query[i] = v
	}
}

// scaleTo changes the batch's scale so that the largest magnitude of a logit becomes limit. A logit is the scale times
// the sum of the products of the elements of a query and a key. If products is true, scaleTo adds the magnitudes of
// these products instead, and the largest of these sums, times the scale, becomes limit. scaleTo also discards the rows
// that reference has kept, because they belong to the old scale.
func (p *problem) scaleTo(limit float64, products bool) {
	largest := 0.0
	p.largestLogit = 0
	p.eachRow(func(seq, query, head int, _ []float32) {
		p.reference(seq, query, head)
		if products {
			largest = max(largest, p.products)
		} else {
			largest = p.largestLogit
		}
	})
	p.batch.Scale *= float32(limit / largest)
	p.keep = map[[3]int]referenceRow{}
}

func float32Problem(size int, seed uint64) *problem {
	return newProblem(rand.New(rand.NewPCG(21, seed)), problemSpec{
		shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: size, DType: F32},
		heads: 2, lens: []int{700, 530, 33}, queries: []int{1, 2, 5}, contents: contentsOf(F32),
	})
}

func TestFloat32WithLogitsUpTo30(t *testing.T) {
	level.SkipNormal(t)
	for _, kind := range float32Kinds {
		for i, size := range []int{256, 40, 32, 80, 128} {
			if i > 1 && kind.name != "random" && !level.Exhaustive() {
				continue
			}
			for seed := range level.Pick(uint64(1), 10) {
				p := float32Problem(size, seed)
				kind.change(p, rand.New(rand.NewPCG(22, seed)))
				if kind.name == "products cancel" {
					p.scaleTo(13, true)
				} else {
					p.scaleTo(30, false)
				}
				t.Run(fmt.Sprintf("%s, head of %d, seed %d", kind.name, size, seed), func(t *testing.T) { p.requireNear(t, f32Bound) })
			}
		}
	}
}

func TestFloat32WithOptionsAndLogitsUpTo30(t *testing.T) {
	for _, o := range []struct {
		name   string
		change func(b *Batch)
	}{
		{"alibi", func(b *Batch) { b.Scale /= 2; b.AlibiSlopes = []float32{1. / 47, 1. / 151} }},
		{"negative scale", func(b *Batch) { b.Scale = -b.Scale }},
		{"soft cap", func(b *Batch) { b.SoftCap = 31; b.Scale *= 2 }},
		{"sinks", func(b *Batch) { b.Sinks = []float32{29, -3} }},
		{"all", func(b *Batch) {
			b.SoftCap, b.AlibiSlopes, b.Sinks, b.SlidingWindow = 14, []float32{1. / 47, 1. / 151}, []float32{3, 13}, 600
		}},
	} {
		p := float32Problem(64, 1)
		p.scaleTo(30, false)
		o.change(&p.batch)
		t.Run(o.name, func(t *testing.T) {
			p.largestLogit = 0
			p.requireNear(t, f32Bound)
			require.Less(t, p.largestLogit, 31.0)
		})
	}
}

func TestFloat32AfterARowWithLargeLogits(t *testing.T) {
	forEachSet(t, testedSets(), func(t *testing.T, runner *Runner) {
		p := float32Problem(64, 3)
		p.batch.AlibiSlopes = []float32{1. / 47, 1. / 151}
		shrink := func(head int) {
			for i := range p.query {
				if i/64%2 == head {
					p.query[i] *= 1e-3
				}
			}
		}
		shrink(1)
		want := outputs(t, runner, p, nil)
		shrink(0)
		got := outputs(t, runner, p, nil)
		for start := 64; start < len(got); start += 128 {
			requireSameBits(t, want[start:][:64], got[start:][:64], fmt.Sprintf("element %d", start))
		}
	})
}

func TestFloat32BesideLargeKeysThatAreNotReached(t *testing.T) {
	for _, o := range []struct {
		name   string
		change func(b *Batch)
		hides  func(token int) bool
	}{
		{"after it", func(*Batch) {}, func(int) bool { return false }},
		{"before its window", func(b *Batch) { b.SlidingWindow = 37 }, func(token int) bool { return token < 541-37 }},
	} {
		t.Run(o.name, func(t *testing.T) {
			forEachSet(t, testedSets(), func(t *testing.T, runner *Runner) {
				const position, n = 540, 560
				firstOutputs := func(unreached float32) []float32 { // the outputs of the query at position
					p := newProblem(rand.New(rand.NewPCG(23, 1)), problemSpec{
						shape: Shape{BlockSize: 8, NumKVHeads: 1, HeadSize: 32, DType: F32}, heads: 2, lens: []int{n},
						queries: []int{n - position},
					})
					o.change(&p.batch)
					p.eachToken(func(_, token int) {
						if unreached != 0 && (token > position || o.hides(token)) {
							p.set(0, token, token%32, unreached, false)
							p.set(0, token, 7, unreached, true)
						}
					})
					return outputs(t, runner, p, nil)[:2*32]
				}
				want := firstOutputs(0)
				for _, v := range []float32{1e4, float32(math.NaN())} {
					requireSameBits(t, want, firstOutputs(v), fmt.Sprintf("beside %v", v))
				}
			})
		})
	}
}

// Ensure that the error is at most 1.5e-7·S times the sum of |p·v|, even if the products of a logit cancel each
// other. S is the largest sum of the magnitudes of the products of one logit.
func TestFloat32WithProductsThatCancel(t *testing.T) {
	for _, sum := range []float64{100, 300} {
		p := float32Problem(64, 2)
		cancel := float32Kinds[len(float32Kinds)-1]
		cancel.change(p, rand.New(rand.NewPCG(24, 1)))
		p.scaleTo(sum, true)
		t.Run(fmt.Sprint(sum), func(t *testing.T) { p.requireNear(t, 1.5e-7*sum) })
	}
}

func (p *problem) requireNear(t *testing.T, bound float64) {
	forEachSet(t, testedSets(), func(t *testing.T, runner *Runner) {
		require.NoError(t, runner.Forward(&p.cache, &p.batch))
		requireNear(t, p, bound)
	})
}
