package calibrate

import (
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/sim/cost"
)

// LeastPoints is how many measurements it takes for a fit to say anything about
// what was not measured.
const LeastPoints = 8

// A Residual is a point and what the line makes of it.
type Residual struct {
	Label    string  `json:"label"`
	Measured float64 `json:"measured_ms"`
	Fitted   float64 `json:"fitted_ms"`
	LeftOut  float64 `json:"left_out_ms"` // by a line fitted to all other points
}

// A Calibration is a line, in ms, and how well it fits.
type Calibration struct {
	Linear    cost.Linear
	Fit       cost.Fit
	Residuals []Residual
}

// Fit finds the line with the least relative errors whose parts are not negative.
// The errors it states are of points that were left out of the fit, one at a
// time. The error wraps ErrInput.
func Fit(points []Point) (*Calibration, error) {
	for _, p := range points {
		if !(p.Seconds > 0) || math.IsInf(p.Seconds, 0) || !(p.Steps > 0) || !(p.Seqs >= 0) || !(p.Context >= 0) || !(p.Prompt >= 0) {
			return nil, fmt.Errorf("%w: %s: %v s for %v iterations: want numbers above 0", ErrInput, p.Label, p.Seconds, p.Steps)
		}
	}
	if len(points) < 2 {
		return nil, fmt.Errorf("%w: %d points: it takes at least 2, and %d for the errors to mean something", ErrInput, len(points), LeastPoints)
	}
	x, ok := solve(points)
	if !ok {
		return nil, fmt.Errorf("%w: no time of an iteration follows from these %d points: measure different batch sizes and prompts", ErrInput, len(points))
	}
	c := &Calibration{Linear: cost.Linear{Base: 1e3 * x[0], Seq: 1e3 * x[1], Context: 1e3 * x[2], Prompt: 1e3 * x[3]}}
	var errs []float64
	for i, p := range points {
		r := Residual{Label: p.Label, Measured: 1e3 * p.Seconds, Fitted: 1e3 * at(x, p)}
		if y, ok := solve(slices.Delete(slices.Clone(points), i, i+1)); ok {
			r.LeftOut = 1e3 * at(y, p)
			errs = append(errs, math.Abs(r.LeftOut/r.Measured-1))
		}
		c.Residuals = append(c.Residuals, r)
	}
	c.Fit.Points = len(points)
	if len(errs) > 0 {
		slices.Sort(errs)
		c.Fit.Median, c.Fit.Worst = errs[(len(errs)-1)/2], errs[len(errs)-1]
	}
	return c, nil
}

func at(x [4]float64, p Point) float64 {
	t := p.terms()
	return x[0]*t[0] + x[1]*t[1] + x[2]*t[2] + x[3]*t[3]
}

// solve tries every set of parts that has the base: of those without a negative
// part the one with the least squares of relative errors. With four parts that is
// quicker than an active-set method, and exact.
func solve(points []Point) (best [4]float64, ok bool) {
	least := math.Inf(1)
	for set := 1; set < 16; set += 2 {
		var parts []int
		for k := range 4 {
			if set>>k&1 == 1 {
				parts = append(parts, k)
			}
		}
		x, solved := leastSquares(points, parts)
		if !solved || x[0] <= 0 || slices.Min(x[:]) < 0 {
			continue
		}
		sum := 0.0
		for _, p := range points {
			e := at(x, p)/p.Seconds - 1
			sum += e * e
		}
		if sum < least*(1-1e-9) {
			best, ok, least = x, true, sum
		}
	}
	return best, ok
}

// leastSquares solves the normal equations of the relative errors for some parts.
func leastSquares(points []Point, parts []int) (x [4]float64, ok bool) {
	n := len(parts)
	if n > len(points) {
		return x, false
	}
	var scale [4]float64 // the parts are of different sizes
	for _, k := range parts {
		for _, p := range points {
			scale[k] = max(scale[k], p.terms()[k]/p.Seconds)
		}
		if scale[k] == 0 {
			return x, false
		}
	}
	a := make([][]float64, n)
	for i := range a {
		a[i] = make([]float64, n+1)
	}
	for _, p := range points {
		t := p.terms()
		for i, k := range parts {
			v := t[k] / p.Seconds / scale[k]
			for j, l := range parts {
				a[i][j] += v * t[l] / p.Seconds / scale[l]
			}
			a[i][n] += v
		}
	}
	for i := range n {
		pivot := i
		for r := i + 1; r < n; r++ {
			if math.Abs(a[r][i]) > math.Abs(a[pivot][i]) {
				pivot = r
			}
		}
		if math.Abs(a[pivot][i]) < 1e-9*float64(len(points)) {
			return x, false // the points do not tell these parts apart
		}
		a[i], a[pivot] = a[pivot], a[i]
		for r := range n {
			if r != i {
				f := a[r][i] / a[i][i]
				for c := i; c <= n; c++ {
					a[r][c] -= f * a[i][c]
				}
			}
		}
	}
	for i, k := range parts {
		x[k] = a[i][n] / a[i][i] / scale[k]
	}
	return x, true
}
