package calibrate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"llmmemory/internal/simulation/cost"
)

// A Residual has the measured time of a point and the times that fitted lines predict for it.
type Residual struct {
	Label    string  `json:"label"`
	Measured float64 `json:"measured_ms"`
	Fitted   float64 `json:"fitted_ms"`
	LeftOut  float64 `json:"left_out_ms"` // by a line fitted to the parts of the points without this one; see maxParts
}

// A Calibration has a line in ms and its errors.
type Calibration struct {
	Model     string // that was served; "" if not known
	Linear    cost.Linear
	Spread    *cost.Spread // nil if there are too few measurements of the same work
	Fit       cost.Fit
	Residuals []Residual
}

// maxParts is the highest number of parts into which Fit divides the points. For each part, a line is fitted
// to all other parts, and its errors on this part are measured.
const maxParts = 40

// Fit returns the line with the smallest relative errors among the lines without negative coefficients. It also
// returns the errors of such lines for points that they are not fitted to: it leaves out a part of the points, fits
// another line to the rest, and compares the part with this line. If Fit fails, its error wraps ErrInput.
func Fit(points []Point) (*Calibration, error) {
	model, err := check(points)
	if err != nil {
		return nil, err
	}
	x, ok := solve(points)
	if !ok {
		return nil, fmt.Errorf("%w: no time of an iteration follows from these %d points: measure different batch sizes "+
			"and prompts", ErrInput, len(points))
	}
	c := &Calibration{Model: model, Linear: cost.Linear{Base: 1e3 * x[0], Seq: 1e3 * x[1],
		Context: 1e3 * x[2], Prompt: 1e3 * x[3]}}
	var errs []float64
	c.Residuals = make([]Residual, len(points))
	parts := min(len(points), maxParts)
	for part := range parts {
		var others []Point
		for i, p := range points {
			if i%parts != part {
				others = append(others, p)
			}
		}
		y, ok := solve(others)
		for i := part; i < len(points); i += parts {
			p := points[i]
			r := Residual{Label: p.Label, Measured: 1e3 * p.Seconds, Fitted: 1e3 * predict(x, p)}
			if ok {
				r.LeftOut = 1e3 * predict(y, p)
				for _, m := range p.measured() {
					errs = append(errs, math.Abs(predict(y, m)/m.Seconds-1))
				}
			}
			c.Residuals[i] = r
		}
	}
	c.Spread = spread(points, x)
	c.Fit.Points = len(points)
	c.Fit.Range = extent(points)
	measured := 0
	for _, p := range points {
		measured += len(p.measured())
	}
	if measured > len(points) {
		c.Fit.Measured = measured
	}
	if len(errs) > 0 {
		slices.Sort(errs)
		c.Fit.Median, c.Fit.Worst = errs[(len(errs)-1)/2], errs[len(errs)-1]
	}
	return c, nil
}

// check returns an error if a cost file cannot be fitted to the points. model is the name of the model that was
// measured, or "" if the points do not state it.
func check(points []Point) (model string, err error) {
	var models []string
	for _, p := range points {
		if !(p.Seconds > 0) || math.IsInf(p.Seconds, 0) || !(p.Steps > 0) || !(p.Seqs >= 0) || !(p.Context >= 0) ||
			!(p.Prompt >= 0) {
			return "", fmt.Errorf("%w: %s: %v s for %v iterations: want numbers above 0", ErrInput, p.Label, p.Seconds, p.Steps)
		}
		if p.Model != "" && !slices.Contains(models, p.Model) {
			models = append(models, p.Model)
		}
	}
	if len(points) < 2 {
		return "", fmt.Errorf("%w: %d of them: want at least 2, and %d for meaningful errors", ErrInput,
			len(points), cost.MinPoints)
	}
	if len(models) > 1 {
		return "", fmt.Errorf("%w: they are of several models (%s): a cost file has the times of one", ErrInput,
			strings.Join(models, ", "))
	}
	return strings.Join(models, ""), nil
}

// extent returns the range of sizes in the measurements. The line is a guess outside this range.
func extent(points []Point) *cost.Range {
	r := cost.Range{LeastSeqs: math.Inf(1), LeastContext: math.Inf(1)}
	for _, p := range points {
		for _, m := range p.measured() {
			r.MostPrompt = max(r.MostPrompt, m.Prompt)
			if m.Context == 0 {
				continue
			}
			seqs, context := m.Seqs/m.Steps, m.Context/m.Seqs
			r.LeastSeqs, r.MostSeqs = min(r.LeastSeqs, seqs), max(r.MostSeqs, seqs)
			r.LeastContext, r.MostContext = min(r.LeastContext, context), max(r.MostContext, context)
		}
	}
	if r.MostSeqs == 0 {
		r.LeastSeqs, r.LeastContext = 0, 0
	}
	return &r
}

func predict(x [4]float64, p Point) float64 {
	t := p.terms()
	return x[0]*t[0] + x[1]*t[1] + x[2]*t[2] + x[3]*t[3]
}

// solve fits a line to the points in several rounds. In each round it minimizes the sum of the squares of relative
// errors, with the weights of the points. The error of a point is the difference between its time on the line and its
// measured time. The relative error is the error divided by another time of the same point:
//
//   - In the first round, this is the measured time.
//   - In a further round, it is the time on the line of the previous round.
//
// One round alone would give a line that is too low. A measured time that is too long is also a larger divisor, so its
// relative error is smaller than that of a measured time that is too short.
func solve(points []Point) (best [4]float64, ok bool) {
	divisors := slices.Clone(points)
	for range rounds {
		x, solved := nearest(points, divisors)
		if !solved {
			return best, ok
		}
		best, ok = x, true
		for i := range divisors {
			divisors[i].Seconds = predict(best, points[i])
		}
	}
	return best, ok
}

// rounds is how often solve fits the line. Four times give three correct digits.
const rounds = 4

// nearest returns the line for which the squares of the relative errors, with the weights of the points, have the
// smallest sum. It considers only lines whose base is above 0 and that have no negative coefficient. The relative error
// of points[i] is its error divided by divisors[i].Seconds. nearest fits a line with every subset of the coefficients
// that contains the base. This finds the best line.
func nearest(points, divisors []Point) (best [4]float64, ok bool) {
	leastSum := math.Inf(1)
	for set := 1; set < 16; set += 2 {
		var parts []int
		for k := range 4 {
			if set>>k&1 == 1 {
				parts = append(parts, k)
			}
		}
		x, solved := leastSquares(points, divisors, parts)
		if !solved || x[0] <= 0 || slices.Min(x[:]) < 0 {
			continue
		}
		sum := 0.0
		for i, p := range points {
			e := (predict(x, p) - p.Seconds) / divisors[i].Seconds * math.Sqrt(p.weight())
			sum += e * e
		}
		if sum < leastSum*(1-1e-9) {
			best, ok, leastSum = x, true, sum
		}
	}
	return best, ok
}

// leastSquares solves the normal equations for the coefficients whose indexes are in parts. The other coefficients are
// 0. The error of points[i] is divided by divisors[i].Seconds, and its square is multiplied by the weight of points[i].
// If the points do not determine the coefficients, leastSquares returns false.
func leastSquares(points, divisors []Point, parts []int) (x [4]float64, ok bool) {
	n := len(parts)
	if n > len(points) {
		return x, false
	}
	var scale [4]float64 // because the coefficients differ in size
	for _, k := range parts {
		for _, p := range divisors {
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
	for i, p := range points {
		t, divisor := p.terms(), divisors[i].Seconds/math.Sqrt(p.weight())
		for i, k := range parts {
			v := t[k] / divisor / scale[k]
			for j, l := range parts {
				a[i][j] += v * t[l] / divisor / scale[l]
			}
			a[i][n] += v * p.Seconds / divisor
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
			return x, false // the points do not determine these coefficients
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
