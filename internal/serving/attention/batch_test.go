package attention

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// testdata/guest/attention_errors.c has the other errors, which C callers can cause.
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

func (k panicking) combine(call *call, x, y []float32, a, b float32) {
	if *k.armed {
		*k.armed = false
		panic("combine")
	}
	k.portable.combine(call, x, y, a, b)
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
