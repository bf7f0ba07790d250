package attention

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/level"
)

func newRunner(t testing.TB, workers int, k ...kernels) *Runner {
	pool, err := parallel.New(workers)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	r := NewRunner(pool)
	r.kernels = append(k, r.kernels)[0]
	return r
}

// requireNear fails the test if the error of an output is more than bound times the sum of |p·v| in the reference. p
// is the weight of a token, and v its value.
func requireNear(t *testing.T, p *problem, bound float64) {
	t.Helper()
	if p.cache.DType == Int8 {
		bound += int8Bound
	}
	worst := 0.0
	p.eachRow(func(seq, query, head int, got []float32) {
		want, size := p.reference(seq, query, head)
		for i := range want {
			d, ok := math.Abs(float64(got[i])-want[i]), false
			if math.IsNaN(want[i]) {
				ok = math.IsNaN(float64(got[i]))
			} else {
				ok = d <= bound*size[i]+denormal // not if d is NaN
				if d > 0 {
					worst = max(worst, d/size[i])
				}
			}
			if !ok { // an assertion for each element takes longer than the reference
				require.FailNow(t, "too far from the reference", "sequence %d, query %d, head %d, element %d: %v, reference %v",
					seq, query, head, i, got[i], want[i])
			}
		}
	})
	t.Logf("at most %.2g of the sum of |p·v|", worst)
}

const (
	f32Bound  = 2e-6
	int8Bound = 1e-4         // queries of 16 bits
	denormal  = 4 * 0x1p-149 // rounding errors of sums of the smallest float32 numbers
)

var (
	allDTypes  = []DType{F32, F16, BF16, E4M3, E5M2, Int8}
	allLayouts = []Layout{LayoutTile, LayoutVLLM, LayoutFlash}
)

// typesOf returns the types whose outputs are compared bit by bit. For the portable kernels these are only two
// types: those kernels are slow, and read all types in the same way.
func typesOf(k kernels) []DType {
	if k == (portable{}) {
		return []DType{F32, Int8}
	}
	return allDTypes
}

func setsOf(d DType) []kernels {
	return slices.DeleteFunc(slices.Clone(testedSets()), func(k kernels) bool { return !slices.Contains(typesOf(k), d) })
}

// contentsOf returns a function that draws the numbers of a problem with keys and values of type d, or nil for the
// default. For float32 it draws larger numbers: logits reach 30, so that some are computed in float64.
func contentsOf(d DType) func(r *rand.Rand) float32 {
	if d == F32 {
		return func(r *rand.Rand) float32 { return float32(r.NormFloat64()) * 2.3 }
	}
	return nil
}

// testedSets returns the kernels to test. make quick tests only the fastest kernels, make test also the portable
// kernels, and make exhaustive all kernels.
func testedSets() []kernels {
	switch {
	case testing.Short():
		return []kernels{fastest}
	case level.Exhaustive():
		return instructionSets()
	}
	return []kernels{portable{}, fastest}
}

func forEachSet(t *testing.T, sets []kernels, test func(t *testing.T, r *Runner)) {
	for _, k := range sets {
		t.Run(k.String(), func(t *testing.T) {
			test(t, newRunner(t, 2, k))
		})
	}
}

// forEach runs a test of the same problem with each set of kernels. It computes each row of the reference only
// once.
func (p *problem) forEach(t *testing.T, sets []kernels, test func(t *testing.T, r *Runner)) {
	p.keep = map[[3]int]referenceRow{}
	forEachSet(t, sets, func(t *testing.T, r *Runner) {
		clear(p.out)
		test(t, r)
	})
}

func outputs(t *testing.T, r *Runner, p *problem, change func(b *Batch)) []float32 {
	t.Helper()
	b := p.batch
	if change != nil {
		change(&b)
	}
	clear(p.out)
	require.NoError(t, r.Forward(&p.cache, &b))
	return append([]float32(nil), p.out...)
}

func requireSameBits(t *testing.T, want, got []float32, name string) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	for i := range want {
		if math.Float32bits(want[i]) != math.Float32bits(got[i]) {
			require.Failf(t, "other bits", "%s: element %d is %v, not %v", name, i, got[i], want[i])
		}
	}
}

func TestNeitherVersionNorCoresNorTheBatchChangeABit(t *testing.T) {
	for _, k := range testedSets() {
		for _, dtype := range typesOf(k) {
			t.Run(fmt.Sprintf("%v %v", k, dtype), func(t *testing.T) {
				r := rand.New(rand.NewPCG(3, 3))
				p := newProblem(r, problemSpec{
					shape: Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 64, DType: dtype},
					heads: 6, lens: []int{2100, 3, 700, 1030}, queries: []int{1, 1, 5, 1}, contents: contentsOf(dtype),
				})
				one := newRunner(t, 1, k)
				want := outputs(t, one, p, func(b *Batch) { b.Version = V1 })
				for _, workers := range []int{1, 2, 5} {
					runner := newRunner(t, workers, k)
					for _, v := range []Version{Auto, V1, V2} {
						got := outputs(t, runner, p, func(b *Batch) { b.Version = v })
						requireSameBits(t, want, got, fmt.Sprintf("%d workers, version %d", workers, v))
					}
				}
				for seq := range p.batch.seqs() {
					got := outputs(t, one, p, func(b *Batch) { selectSequence(b, seq) })
					first, n, _ := p.batch.queries(seq)
					width := p.batch.NumHeads * p.cache.HeadSize
					requireSameBits(t, want[first*width:][:n*width], got[:n*width], fmt.Sprintf("sequence %d alone", seq))
				}
			})
		}
	}
}

// selectSequence removes all sequences but one from a batch. Forward then writes the outputs of this sequence to the
// beginning of Out.
func selectSequence(b *Batch, seq int) {
	first, n, _ := b.queries(seq)
	b.SeqLens = b.SeqLens[seq : seq+1]
	b.QueryStart = []int32{0, int32(n)}
	b.BlockTables = b.BlockTables[seq*b.TableStride:][:b.TableStride]
	b.Query.Data = b.Query.Data[first*b.Query.Stride*4:]
}

func TestCascadeChangesNoBit(t *testing.T) {
	level.SkipQuick(t)
	for _, dtype := range allDTypes {
		t.Run(dtype.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(4, 4))
			p := newProblem(r, problemSpec{
				shape: Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 64, DType: dtype},
				heads: 8, lens: []int{1300, 1120, 1121}, queries: []int{1, 3, 1}, common: 1104,
				contents: contentsOf(dtype),
			})
			p.forEach(t, setsOf(dtype), func(t *testing.T, runner *Runner) {
				p.batch.Sinks = nil
				for name, change := range map[string]func(b *Batch){
					"plain": func(b *Batch) {}, "window": func(b *Batch) { b.SlidingWindow = 600 },
					"sinks": func(b *Batch) { b.Sinks = []float32{1, 2, 3, 4, 5, 6, 7, 8} },
				} {
					want := outputs(t, runner, p, func(b *Batch) { change(b); b.CommonPrefix = 0 })
					got := outputs(t, runner, p, change)
					requireSameBits(t, want, got, name)
					got = outputs(t, runner, p, func(b *Batch) { change(b); b.Version = V2 })
					requireSameBits(t, want, got, name)
				}
				p.batch.Sinks = []float32{1, 2, 3, 4, 5, 6, 7, 8}
				outputs(t, runner, p, nil)
				requireNear(t, p, f32Bound)
			})
		})
	}
}

func TestChunksOfAPromptChangeNoBit(t *testing.T) {
	for _, k := range testedSets() {
		for _, dtype := range typesOf(k) {
			t.Run(fmt.Sprintf("%v %v", k, dtype), func(t *testing.T) {
				r := rand.New(rand.NewPCG(5, 5))
				const n, heads, size = 560, 4, 32
				p := newProblem(r, problemSpec{
					shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: size, DType: dtype},
					heads: heads, lens: []int{n}, queries: []int{n}, contents: contentsOf(dtype),
				})
				runner := newRunner(t, 2, k)
				want := outputs(t, runner, p, nil)
				for _, step := range []int{1, 17, 250} {
					for start := 0; start < n; start += max(step, 5) { // single ones at every place in a block
						q := min(step, n-start)
						got := outputs(t, runner, p, func(b *Batch) {
							b.SeqLens, b.QueryStart = []int32{int32(start + q)}, []int32{0, int32(q)}
							b.Query.Data = b.Query.Data[start*heads*size*4:]
						})
						requireSameBits(t, want[start*heads*size:][:q*heads*size], got[:q*heads*size],
							fmt.Sprintf("%d tokens at %d", q, start))
					}
				}
			})
		}
	}
}

func TestInstructionSetsGiveTheSameBits(t *testing.T) {
	sets := instructionSets()
	if len(sets) < 3 {
		t.Skip("this processor has no AVX-512")
	}
	runner := newRunner(t, 2)
	for i, o := range optionSets {
		for j, dtype := range allDTypes {
			heads := []int{2, 4, 6, 8, 10, 14, 24}[(i+j)%7]
			p := newProblem(rand.New(rand.NewPCG(6, uint64(i))), problemSpec{
				shape: Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: []int{80, 128, 48, 256, 112}[(i+j)%5], DType: dtype},
				heads: heads, lens: []int{530, 33, 70}, queries: []int{1, 20, 2}, contents: contentsOf(dtype),
			})
			p.change(o.change)
			runner.kernels = sets[1]
			want := outputs(t, runner, p, nil)
			for _, k := range sets[2:] {
				runner.kernels = k
				requireSameBits(t, want, outputs(t, runner, p, nil), fmt.Sprintf("%v, %v, %s, %d heads", k, dtype, o.name, heads))
			}
		}
	}
}
