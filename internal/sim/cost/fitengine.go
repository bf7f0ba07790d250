package cost

import (
	"math"
	"slices"
)

// How much a constant that is e times its start counts, against a prediction that is e
// times a measurement: little where a start was chosen by hand, more where it is fitted to
// all releases of an engine.
const (
	PullToHand = 1e-3
	PullToAll  = 0.05
)

// FitEngine finds the constants with the least squares of logarithms of predicted over
// measured, and of themselves over their starts, the latter times pull (Levenberg and
// Marquardt's method). What is 0 at the start is not fitted, nor are links to the host;
// what only several workers or experts have is fitted where there is a point with them.
func FitEngine(points []Published, start Engine, pull float64) (Engine, error) {
	f, err := newFit(points, start, pull)
	if err != nil {
		return start, err
	}
	best := f.start
	off, least := f.off(best)
	damping := 1e-2
	for range 100 {
		slopes := f.slopes(best, off)
		before := least
		for range 12 {
			e := f.step(best, slopes, off, damping)
			if got, sum := f.off(e); sum < least {
				best, off, least = e, got, sum
				break
			}
			damping *= 4
		}
		if least >= before*(1-1e-7) {
			break
		}
		damping = max(damping/5, 1e-9)
	}
	return best, nil
}

// engineFit is a fit of an engine's constants to points, as logarithms.
type engineFit struct {
	points []Published
	setups []Setup
	start  Engine
	fitted []int // which of parts
	pull   float64
}

func newFit(points []Published, start Engine, pull float64) (*engineFit, error) {
	f := &engineFit{points: points, setups: make([]Setup, len(points)), start: start, pull: pull}
	several, experts := false, false
	for i, p := range points {
		var err error
		if f.setups[i], err = p.Setup(start); err != nil {
			return nil, err
		}
		several = several || p.Workers > 1
		experts = experts || f.setups[i].LLM.Experts > 0
	}
	e := &f.start
	for i, part := range e.parts() {
		switch {
		case *part.value == 0:
		case !several && (part.value == &e.WorkerLink || part.value == &e.AllReduce):
		case !experts && part.value == &e.ExpertCompute:
		default:
			f.fitted = append(f.fitted, i)
		}
	}
	return f, nil
}

// off are the logarithms whose squares are summed.
func (f *engineFit) off(e Engine) (off []float64, sum float64) {
	for i, p := range f.points {
		s := f.setups[i]
		s.Engine = p.engine(e)
		off = append(off, math.Log(p.on(s.times(16))/p.Seconds()))
	}
	now, start := e.parts(), f.start.parts()
	for _, i := range f.fitted {
		off = append(off, math.Sqrt(f.pull)*math.Log(*now[i].value / *start[i].value))
	}
	for _, d := range off {
		sum += d * d
	}
	return off, sum
}

// slopes are how each of off changes with the logarithm of each constant.
func (f *engineFit) slopes(e Engine, off []float64) [][]float64 {
	all := make([][]float64, len(f.fitted))
	for k, i := range f.fitted {
		changed, by := e, 1e-4
		part := changed.parts()[i]
		if *part.value*math.Exp(by) > part.most {
			by = -by
		}
		*part.value *= math.Exp(by)
		next, _ := f.off(changed)
		all[k] = make([]float64, len(off))
		for j := range off {
			all[k][j] = (next[j] - off[j]) / by
		}
	}
	return all
}

// step is the next try: nearer to where off would be least if it were a line, and the less
// far the more damped.
func (f *engineFit) step(e Engine, slopes [][]float64, off []float64, damping float64) Engine {
	n := len(f.fitted)
	rows := make([][]float64, n)
	for a := range rows {
		rows[a] = make([]float64, n+1)
		for j := range off {
			for b := range n {
				rows[a][b] += slopes[a][j] * slopes[b][j]
			}
			rows[a][n] -= slopes[a][j] * off[j]
		}
		rows[a][a] += damping * (rows[a][a] + 1e-9)
	}
	for k, by := range solve(rows) {
		part := e.parts()[f.fitted[k]]
		*part.value = min(max(*part.value*math.Exp(min(max(by, -1), 1)), part.least), part.most)
	}
	return e
}

// solve is Gauss's elimination: each row has the factors of the unknowns and the right side.
func solve(rows [][]float64) []float64 {
	n := len(rows)
	for i := range n {
		pivot := i
		for j := i + 1; j < n; j++ {
			if math.Abs(rows[j][i]) > math.Abs(rows[pivot][i]) {
				pivot = j
			}
		}
		rows[i], rows[pivot] = rows[pivot], rows[i]
		for j := i + 1; j < n; j++ {
			factor := rows[j][i] / rows[i][i]
			for c := i; c <= n; c++ {
				rows[j][c] -= factor * rows[i][c]
			}
		}
	}
	x := make([]float64, n)
	for i, row := range slices.Backward(rows) {
		x[i] = row[n]
		for c := i + 1; c < n; c++ {
			x[i] -= row[c] * x[c]
		}
		x[i] /= row[i]
	}
	return x
}

// A part is a constant that is fitted, and between what.
type part struct {
	value       *float64
	least, most float64
}

func (e *Engine) parts() []part {
	return []part{
		{&e.Weights, 1e-2, 1}, {&e.Compute, 1e-2, 1}, {&e.ExpertCompute, 1e-2, 1}, {&e.HalfTokens, 1, 3000},
		{&e.Attention, 1e-2, 1}, {&e.PromptAttention, 1e-2, 1}, {&e.Activations, 1e-2, 30},
		{&e.Reread, 1e-3, 1}, {&e.SharedReread, 1e-3, 1},
		{&e.WorkerLink, 1e-2, 1}, {&e.AllReduce, 0.1, 1e4},
		{&e.Base, 1e-4, 1e3}, {&e.Layer, 1e-5, 100}, {&e.PromptBase, 1e-3, 1e3}, {&e.PromptLayer, 1e-5, 100},
		{&e.Seq, 1e-5, 100},
	}
}
