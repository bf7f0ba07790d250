package cost

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// An engineFit fits the constants of all GPUs at once. It converts each constant to a number without bounds: its
// logarithm, or the logarithm of its odds if the constant is a fraction (see part.open). For a constant of a GPU, this
// number is a sum:
//
//	number of the same constant in the field start + difference for all GPUs + difference for this GPU
//
// The fit determines the differences, and stores them in the field x.
//
// The fit minimizes the sum of two sums. The first has, for each point, the square of the logarithm of predicted over
// published time (see worstWeight). The second has the square of each difference, multiplied by its weight (see
// engineFit.pull).
type engineFit struct {
	points []measurement
	setups []Setup
	start  Engine
	gpus   []string
	path   [][2]int // of each point: which rows of x are added up
	x      []float64
}

// worstWeight is the extra weight of large errors: the square of a logarithm r is multiplied by 1 + worstWeight·r².
const worstWeight = 10

func start() Engine {
	e := DefaultEngine
	e.PromptAttention, e.Activations, e.ExpertCompute = 0.5, 1, e.Compute
	e.Layer, e.PromptLayer, e.Seq, e.Base, e.Reread, e.AllReduce = 0.02, 0.02, 0.005, 0.2, 0.1, 20
	e.Rounded = 1
	return e
}

func fitPoints(t *testing.T, points []measurement) *engineFit {
	f := &engineFit{points: points, start: start()}
	for _, p := range points {
		s, err := p.setup(f.start)
		require.NoError(t, err)
		f.setups = append(f.setups, s)
		if !slices.Contains(f.gpus, p.GPU) {
			f.gpus = append(f.gpus, p.GPU)
		}
	}
	for _, p := range points {
		f.path = append(f.path, f.rows(p.GPU))
	}
	f.x = f.fit(make([]float64, (1+len(f.gpus))*len(parts)), 100)
	return f
}

// rows returns the indexes of the two rows of x that determine the constants of a GPU: the row for all GPUs, and the
// GPU's own row.
func (f *engineFit) rows(gpu string) [2]int { return [2]int{0, 1 + slices.Index(f.gpus, gpu)} }

func (f *engineFit) engineOf(gpu string) Engine { return f.engine(f.x, f.rows(gpu)).engine() }

func (f *engineFit) common() Engine {
	x := slices.Clone(f.x)
	clear(x[len(parts):])
	return f.engine(x, [2]int{0, 1}).engine()
}

// engine returns an engine whose constants are those of f.start, changed by two rows of x. A row has one difference for
// each constant, in the order of parts. engine converts a constant to a number without bounds (part.open), adds the
// constant's difference in each of the two rows, and converts the sum back to a constant.
func (f *engineFit) engine(x []float64, rows [2]int) hosted {
	e := hosted{Engine: f.start, Host: 1}
	for j, p := range parts {
		z := p.open(*p.value(&e))
		for _, row := range rows {
			z += x[row*len(parts)+j]
		}
		*p.value(&e) = p.close(z)
	}
	return e
}

func (f *engineFit) residual(i int, e hosted) float64 {
	s, p := f.setups[i], f.points[i]
	s.Engine = e.engine()
	r := math.Log(p.predicted(s.times(16)) / p.Seconds())
	return r * math.Sqrt(1+worstWeight*r*r)
}

func (f *engineFit) sum(x []float64) float64 {
	sum := 0.0
	for i, p := range f.points {
		r := f.residual(i, f.engine(x, f.rows(p.GPU)))
		sum += r * r
	}
	for i, d := range x {
		sum += f.pull(i) * d * d
	}
	return sum
}

// pull returns the weight of the square of x[i] in the sum that the fit minimizes.
func (f *engineFit) pull(i int) float64 {
	if i < len(parts) {
		return pullToStart
	}
	return parts[i%len(parts)].pull
}

// fit runs the method of Levenberg and Marquardt from x.
func (f *engineFit) fit(x []float64, maxRounds int) []float64 {
	x = slices.Clone(x)
	leastSum, damping := f.sum(x), 1e-3
	for range maxRounds {
		squares, slopes := f.normal(x)
		before := leastSum
		for range 8 {
			next := slices.Clone(x)
			for i, step := range solve(squares, slopes, damping) {
				next[i] -= min(max(step, -1), 1)
			}
			if sum := f.sum(next); sum < leastSum {
				x, leastSum = next, sum
				damping = max(damping/5, 1e-7)
				break
			}
			damping *= 6
		}
		if leastSum >= before*(1-1e-4) {
			break
		}
	}
	return x
}

// normal returns the normal equations of the fit at x. Let d(p, i) be the derivative of the error of point p with
// respect to x[i].
//
//   - squares[i][j], where j is at most i, is the sum of d(p, i) * d(p, j) over all points p. squares[i][i] also
//     contains f.pull(i).
//   - slopes[i] is the sum of d(p, i) * (error of p) over all points p, plus f.pull(i) * x[i].
//
// The error of a point depends on two rows of x: the row for all GPUs and the row of the point's GPU. The derivatives
// for a constant are equal in both rows, because engine adds the two rows.
func (f *engineFit) normal(x []float64) (squares [][]float64, slopes []float64) {
	n := len(parts)
	squares, slopes = make([][]float64, len(x)), make([]float64, len(x))
	for i, d := range x {
		squares[i] = make([]float64, i+1)
		squares[i][i] = f.pull(i)
		slopes[i] = f.pull(i) * d
	}
	slope := make([]float64, n)
	for i := range f.points {
		e := f.engine(x, f.path[i])
		residual := f.residual(i, e)
		for j, p := range parts {
			changed := e
			*p.value(&changed) = p.close(p.open(*p.value(&e)) + 1e-4)
			slope[j] = (f.residual(i, changed) - residual) / 1e-4
		}
		f.add(f.path[i], slope, residual, squares, slopes)
	}
	return squares, slopes
}

func (f *engineFit) add(rows [2]int, slope []float64, residual float64, squares [][]float64, slopes []float64) {
	n := len(slope)
	var indexes []int // of x, with a slope
	for _, row := range rows {
		for j := range slope {
			if slope[j] != 0 {
				indexes = append(indexes, row*n+j)
			}
		}
	}
	for _, a := range indexes {
		slopes[a] += slope[a%n] * residual
		for _, b := range indexes {
			if b <= a {
				squares[a][b] += slope[a%n] * slope[b%n]
			}
		}
	}
}

// solve solves the normal equations by Cholesky's method, with the diagonal multiplied by 1 + damping.
func solve(squares [][]float64, right []float64, damping float64) []float64 {
	n := len(right)
	lower, y := make([][]float64, n), slices.Clone(right)
	for i := range n {
		lower[i] = make([]float64, i+1)
		for j := range i + 1 {
			s := squares[i][j]
			if i == j {
				s += damping*s + 1e-9
			}
			for k, v := range lower[j][:j] {
				s -= lower[i][k] * v
			}
			if i == j {
				lower[i][i] = math.Sqrt(max(s, 1e-12))
			} else {
				lower[i][j] = s / lower[j][j]
			}
		}
		for k, v := range lower[i][:i] {
			y[i] -= v * y[k]
		}
		y[i] /= lower[i][i]
	}
	for i := n - 1; i >= 0; i-- {
		for k := i + 1; k < n; k++ {
			y[i] -= lower[k][i] * y[k]
		}
		y[i] /= lower[i][i]
	}
	return y
}
