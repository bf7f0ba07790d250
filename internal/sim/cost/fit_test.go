package cost

import (
	"math"
	"slices"
)

// An engineFit finds the constants of all releases of a publisher and all GPUs at once. A
// constant is what all of them have, changed by how the GPU (with its host) differs, and by how the
// release on it differs, as logarithms, or as log odds where it is a part of a peak. The
// least is sought of the sum of squares of the logarithms of predicted over published, more
// where they are large (weight), and of these differences, times what they are pulled by.
type engineFit struct {
	points []measurement
	setups []Setup
	start  Engine
	parts  []part
	gpus   []string
	pairs  []pair
	path   [][3]int // of each point: which rows of x are added up
	x      []float64
}

// worstWeight: an error of a factor e counts as one and this many.
const worstWeight = 10

func newFit(points []measurement, start Engine) (*engineFit, error) {
	f := &engineFit{points: points, start: start}
	for _, p := range points {
		s, err := p.Setup(start)
		if err != nil {
			return nil, err
		}
		f.setups = append(f.setups, s)
		if !slices.Contains(f.gpus, p.GPU) {
			f.gpus = append(f.gpus, p.GPU)
		}
		if key := (pair{p.Release, p.GPU}); !slices.Contains(f.pairs, key) {
			f.pairs = append(f.pairs, key)
		}
	}
	for _, p := range points {
		f.path = append(f.path, f.rows(pair{p.Release, p.GPU}))
	}
	for _, p := range parts {
		e := hosted{Engine: start, Host: 1}
		if *p.value(&e) > 0 {
			f.parts = append(f.parts, p)
		}
	}
	f.x = make([]float64, (1+len(f.gpus)+len(f.pairs))*len(f.parts))
	return f, nil
}

// rows of a release on a GPU: what all have, the GPU, the release on it.
func (f *engineFit) rows(of pair) [3]int {
	return [3]int{0, 1 + slices.Index(f.gpus, of.gpu), 1 + len(f.gpus) + slices.Index(f.pairs, of)}
}

// engine returns the first engine of the fit with the constants x.
func (f *engineFit) engine(x []float64, rows [3]int) hosted {
	e := hosted{Engine: f.start, Host: 1}
	for j, p := range f.parts {
		z := p.open(*p.value(&e))
		for _, row := range rows {
			z += x[row*len(f.parts)+j]
		}
		*p.value(&e) = p.close(z)
	}
	return e
}

func (f *engineFit) of(release pair) Engine { return f.engine(f.x, f.rows(release)).engine() }

// off returns how far a prediction is off, weighted.
func (f *engineFit) off(i int, e hosted) float64 {
	s, p := f.setups[i], f.points[i]
	s.Engine = p.engine(e.engine())
	r := math.Log(p.on(s.times(16)) / p.Seconds())
	return r * math.Sqrt(1+worstWeight*r*r)
}

func (f *engineFit) sum(x []float64) float64 {
	sum := 0.0
	for i, p := range f.points {
		r := f.off(i, f.engine(x, f.rows(pair{p.Release, p.GPU})))
		sum += r * r
	}
	for i, d := range x {
		sum += f.pull(i) * d * d
	}
	return sum
}

// pull of an element of x.
func (f *engineFit) pull(i int) float64 {
	p := f.parts[i%len(f.parts)]
	switch row := i / len(f.parts); {
	case row == 0:
		return pullToStart
	case row <= len(f.gpus):
		return p.gpu
	}
	return p.release
}

// fit runs Levenberg and Marquardt's method, from x.
func (f *engineFit) fit(x []float64, most int) []float64 {
	x = slices.Clone(x)
	least, damping := f.sum(x), 1e-3
	for range most {
		squares, slopes := f.normal(x)
		before := least
		for range 8 {
			next := slices.Clone(x)
			for i, by := range solve(squares, slopes, damping) {
				next[i] -= min(max(by, -1), 1)
			}
			if sum := f.sum(next); sum < least {
				x, least = next, sum
				damping = max(damping/5, 1e-7)
				break
			}
			damping *= 6
		}
		if least >= before*(1-1e-4) {
			break
		}
	}
	return x
}

// normal returns the products of all slopes with each other (below the diagonal) and with what
// is off. A point has the same slope in each of its rows.
func (f *engineFit) normal(x []float64) (squares [][]float64, slopes []float64) {
	n := len(f.parts)
	squares, slopes = make([][]float64, len(x)), make([]float64, len(x))
	for i, d := range x {
		squares[i] = make([]float64, i+1)
		squares[i][i] = f.pull(i)
		slopes[i] = f.pull(i) * d
	}
	slope := make([]float64, n)
	for i := range f.points {
		e := f.engine(x, f.path[i])
		off := f.off(i, e)
		for j, p := range f.parts {
			changed := e
			*p.value(&changed) = p.close(p.open(*p.value(&e)) + 1e-4)
			slope[j] = (f.off(i, changed) - off) / 1e-4
		}
		f.add(f.path[i], slope, off, squares, slopes)
	}
	return squares, slopes
}

// add adds what a point with these slopes, in each of its rows, has a share in.
func (f *engineFit) add(rows [3]int, slope []float64, off float64, squares [][]float64, slopes []float64) {
	n := len(slope)
	var at []int // of x, with a slope
	for _, row := range rows {
		for j := range slope {
			if slope[j] != 0 {
				at = append(at, row*n+j)
			}
		}
	}
	for _, a := range at {
		slopes[a] += slope[a%n] * off
		for _, b := range at {
			if b <= a {
				squares[a][b] += slope[a%n] * slope[b%n]
			}
		}
	}
}

// solve uses Cholesky's method, with the diagonal made larger by a part.
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
