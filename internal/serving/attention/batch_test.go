package attention

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// testdata/guest/attention_errors.c tests the other errors, which C callers can cause.
func TestABatchThatCannotBeComputedIsRefused(t *testing.T) {
	runner := newRunner(t, 1)
	for _, c := range []struct {
		name    string
		change  func(b *Batch)
		wantErr string
	}{
		{"a table stride whose multiples overflow to those of another sequence", func(b *Batch) { b.TableStride = 1 << 62 },
			"sequence 4 needs 3 entries of its block table; it has 0"},
		{"a table stride whose multiples overflow to negative numbers", func(b *Batch) {
			b.QueryStart, b.TableStride = []int32{0, 1, 1, 1, 2, 2}, 1<<62
		}, "sequence 3 needs 3 entries of its block table; it has 0"},
		{"outputs that begin in the second row of queries", func(b *Batch) { b.Out.Data = b.Query.Data[32*4:] },
			"outputs overlap with queries"},
		{"outputs in the place of queries with another stride", func(b *Batch) { b.Out, b.Query.Stride = b.Query, 40 },
			"outputs overlap with queries"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProblem(rand.New(rand.NewPCG(42, 1)), problemSpec{
				shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32}, heads: 1, lens: []int{33, 33, 33, 33, 33},
				queries: []int{1, 0, 0, 0, 1},
			})
			rows := make([]float32, 3*40) // more than the two query tokens need
			p.batch.Query, p.batch.Out = Float32s(rows, 32), Float32s(make([]float32, 2*32), 32)
			c.change(&p.batch)
			err := runner.Forward(&p.cache, &p.batch)
			require.ErrorIs(t, err, ErrArgument)
			require.ErrorContains(t, err, c.wantErr)
		})
	}
}

type panicking struct {
	portable
	armed *bool
}

func (k panicking) combine(arguments *args, x, y []float32, a, b float32) {
	if *k.armed {
		*k.armed = false
		panic("combine")
	}
	k.portable.combine(arguments, x, y, a, b)
}

func TestARunnerGoesOnAfterAPanic(t *testing.T) {
	p := newProblem(rand.New(rand.NewPCG(43, 1)), problemSpec{
		shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32}, heads: 1, lens: []int{1100},
	})
	p.batch.Version = V2
	armed := false
	runner := newRunner(t, 2, panicking{armed: &armed})
	want := outputs(t, runner, p, nil)
	armed = true
	require.Panics(t, func() { _ = runner.Forward(&p.cache, &p.batch) })
	requireSameBits(t, want, outputs(t, runner, p, nil), "after the panic")
}

func sharing(lens ...int) *problem {
	return newProblem(rand.New(rand.NewPCG(5, 6)), problemSpec{
		shape: Shape{BlockSize: 16, NumKVHeads: 2, HeadSize: 32, DType: F16}, heads: 4, lens: lens, queries: []int{1, 1, 1},
		common: 1024,
	})
}

func TestAPrefixThatIsNotCommonIsRefused(t *testing.T) {
	runner := newRunner(t, 2)
	for _, c := range []struct {
		name    string
		change  func(p *problem)
		wantErr string
	}{
		{"common", func(*problem) {}, ""},
		{"longer than what is common", func(p *problem) { p.batch.CommonPrefix = 1040 },
			"the first 1040 tokens are not common"},
		{"another block in the last sequence", func(p *problem) {
			table := p.batch.BlockTables[2*p.batch.TableStride:]
			table[3], table[4] = table[4], table[3]
		}, "entry 3 of the block table of sequence 0"},
		{"another block below the window", func(p *problem) {
			p.batch.SlidingWindow = 600 // the query token of sequence 0 attends only to tokens after the prefix
			p.batch.BlockTables[3] = -1
		}, ""},
		{"no block where another sequence reaches", func(p *problem) {
			p.batch.SlidingWindow = 600
			p.batch.BlockTables[50] = -1
		}, "entry 50 of the block table of sequence 0 is block -1"},
		{"the first sequence has no queries", func(p *problem) {
			p.batch.QueryStart = []int32{0, 0, 1, 2}
			for i := range p.batch.TableStride {
				p.batch.BlockTables[i] = math.MaxInt32
			}
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := sharing(3000, 1100, 1200)
			c.change(p)
			err := runner.Forward(&p.cache, &p.batch)
			requireError(t, err, ErrArgument, c.wantErr)
			if err != nil {
				return
			}
			got := append([]float32{}, p.out...)
			p.batch.CommonPrefix = 0
			require.NoError(t, runner.Forward(&p.cache, &p.batch))
			require.Equal(t, p.out, got)
		})
	}
}

// Ensure that Forward reads no entry of a block table after the last token of its sequence. Forward reads the common
// prefix through the table of the first sequence. The code for a single query token also prefetches the blocks after
// the prefix. In the first sequence's table, the entries after its last token can have any value.
func TestNoEntryIsReadAfterTheEndOfTheSequenceWhoseTableHasThePrefix(t *testing.T) {
	const group = 4
	const last = maxItemRows / group // with the token of the first sequence, these are too many rows for one item
	forEachSet(t, testedSets(), func(t *testing.T, runner *Runner) {
		p := newProblem(rand.New(rand.NewPCG(41, 1)), problemSpec{
			shape: Shape{BlockSize: 16, NumKVHeads: 1, HeadSize: 32, DType: F16}, heads: group,
			lens: []int{1025, 1024 + 512 + last}, queries: []int{1, last}, common: 1024,
		})
		require.NoError(t, runner.Forward(&p.cache, &p.batch))
		got := slices.Clone(p.out)
		p.batch.CommonPrefix = 0
		require.NoError(t, runner.Forward(&p.cache, &p.batch))
		require.Equal(t, p.out, got)
	})
}
