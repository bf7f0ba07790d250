//go:build amd64 && !purego

package matrix

import (
	"math"
	"sync"
	"time"
)

// pairsAreFast reports whether products of pairs of BF16 are as fast here as those of single values, of which an
// instruction multiplies half as many: some processors execute VDPBF16PS at half the rate. Both have the same bits, so
// what is measured decides only how long a product takes. It is measured once, when the first matrix of W16A16 is made.
// Tests replace it.
var pairsAreFast = sync.OnceValue(func() bool {
	var arena Arena
	defer arena.Close()
	single, pairs := newTrial(&arena, false), newTrial(&arena, true)
	return single != nil && pairs != nil && fastest(pairs.run, time.Now) <= fastest(single.run, time.Now)
})

// A trial is a product of zeros of W16A16.
type trial struct {
	m       *Matrix
	input   Input
	x, dst  []float32
	scratch *Scratch
}

const trialRows, trialInputs, trialOutputs = 24, 1024, 2 * Panel

// newTrial returns a trial with pairs or with single values, or nil if there is no memory.
func newTrial(a *Arena, pairs bool) *trial {
	m := &Matrix{Type: W16A16, Out: trialOutputs, In: trialInputs, pairs: pairs}
	m.panelBytes = m.bytesOf(m.In)
	var err error
	if m.data, err = a.take(m.Panels() * m.panelBytes); err != nil {
		return nil
	}
	return &trial{m: m, x: make([]float32, trialRows*m.In), dst: make([]float32, trialRows*m.Out), scratch: NewScratch()}
}

func (t *trial) run() {
	for call := range t.input.Set(t.x, trialRows, t.m.In, t.m.Form()) {
		t.input.Pack(call)
	}
	t.m.Product(t.dst, t.m.Out, &t.input, 0, t.m.Panels(), t.scratch)
}

// fastest returns the shortest time of a few runs after the first, by a clock.
func fastest(run func(), now func() time.Time) time.Duration {
	const runs = 7
	run()
	shortest := time.Duration(math.MaxInt64)
	for range runs {
		start := now()
		run()
		shortest = min(shortest, now().Sub(start))
	}
	return shortest
}
