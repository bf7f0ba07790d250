package matrix

import (
	"math"
	"time"
)

// TimesAsLong returns how many times as long a product of many rows takes with matrices of type t as with those of type
// other, as a short measurement on this thread says. Blocks of both have the given number of inputs; types without
// blocks ignore it. The result is NaN if there is no such matrix or no memory.
func TimesAsLong(t, other Type, block int) float64 {
	const rows, outputs, inputs = 128, Panel, 512 // few, because processors without kernels are slow
	var both [2]Matrix
	for i, kind := range []Type{t, other} {
		inBlock := block
		if kind.bits() == 0 {
			inBlock = 0
		}
		m, err := shaped(kind, outputs, inputs, inBlock)
		if err != nil {
			return math.NaN()
		}
		both[i] = *m
	}
	return timesAsLong(rows, both[0], both[1])
}

// timesAsLong returns how many times as long a product of the given number of rows takes with a matrix like m as with
// one like other, or NaN if there is no memory.
func timesAsLong(rows int, m, other Matrix) float64 {
	var arena Arena
	defer arena.Close()
	one, two := newTrial(&arena, m, rows), newTrial(&arena, other, rows)
	if one == nil || two == nil {
		return math.NaN()
	}
	return float64(fastest(one.run, time.Now)) / float64(fastest(two.run, time.Now))
}

// A trial is a product of zeros.
type trial struct {
	m       *Matrix
	input   Input
	rows    int
	x, dst  []float32
	scratch *Scratch
}

// newTrial returns a trial with a matrix like m, or nil if there is no memory.
func newTrial(a *Arena, m Matrix, rows int) *trial {
	m.panelBytes = m.bytesOf(m.In)
	var err error
	if m.data, err = a.take(m.Panels() * m.panelBytes); err != nil {
		return nil
	}
	return &trial{m: &m, rows: rows, x: make([]float32, rows*m.In), dst: make([]float32, rows*m.Out), scratch: NewScratch()}
}

func (t *trial) run() {
	for call := range t.input.Set(t.x, t.rows, t.m.In, t.m.Form()) {
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
