package workload

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
)

// Gamma returns requests that arrive at a mean rate per second. The gaps between them are gamma distributed, as in
// vLLM's "bench serve --burstiness". The variance of a gap is its squared mean divided by shape. With shape 1 requests
// arrive independently (Poisson), with a smaller shape in bursts, and with a larger shape more evenly.
//
// end is the time, in seconds, at which the source ends. count is the number of requests after which it ends. 0 means
// no limit for either. The error wraps ErrSetting.
func Gamma(l Lengths, rate, shape float64, seed uint64, end float64, count int) (Source, error) {
	switch {
	case !(rate > 0) || math.IsInf(rate, 0) || !(shape >= minShape) || math.IsInf(shape, 0):
		return nil, fmt.Errorf("%w: %v requests a second with a burstiness of %v; the rate must be a number above 0, the "+
			"burstiness at least %v", ErrSetting, rate, shape, minShape)
	case !(end >= 0) || math.IsInf(end, 0):
		return nil, fmt.Errorf("%w: an end after %v s; it must be a number above 0, or 0 for none", ErrSetting, end)
	case count < 0:
		return nil, fmt.Errorf("%w: %d requests; it must be a number above 0, or 0 for no end", ErrSetting, count)
	}
	gaps := rand.New(rand.NewPCG(seed, 1))
	gap := func() float64 { return gamma(gaps, shape) / (shape * rate) }
	if shape == 1 {
		gap = func() float64 { return gaps.ExpFloat64() / rate }
	}
	// Lengths and gaps have separate random numbers, so that a request has the same lengths at every rate.
	return &drawn{lengths: l, rng: rand.New(rand.NewPCG(seed, 2)), gap: gap, end: end, remaining: count,
		endless: count == 0}, nil
}

// minShape is the smallest allowed shape. With smaller ones, nearly all requests would arrive at once.
const minShape = 0.01

// gamma draws a gamma variable with scale 1, by the method of Marsaglia and Tsang (2000).
func gamma(r *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(r, shape+1) * math.Pow(1-r.Float64(), 1/shape)
	}
	d := shape - 1./3
	c := 1 / math.Sqrt(9*d)
	for {
		x := r.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if u := 1 - r.Float64(); math.Log(u) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// A drawn is a Source of requests with random lengths and gaps.
type drawn struct {
	lengths   Lengths
	rng       *rand.Rand
	gap       func() float64
	now       float64
	end       float64
	remaining int
	endless   bool
}

func (d *drawn) Next(r *Request) error {
	if !d.endless && d.remaining == 0 {
		return io.EOF
	}
	d.now += d.gap()
	if d.end > 0 && d.now >= d.end {
		return io.EOF
	}
	d.remaining--
	prompt, output := d.lengths.Draw(d.rng)
	*r = Request{Arrival: d.now, Prompt: prompt, Output: output, Shared: SharedBy(d.lengths)}
	return nil
}
