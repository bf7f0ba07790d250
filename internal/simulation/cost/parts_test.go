package cost

import "math"

// hosted is an engine on a machine with a slower or faster CPU: Host is the ratio of the CPU's times to the times of
// the reference machine.
type hosted struct {
	Engine
	Host float64
}

func (h hosted) engine() Engine {
	e := h.Engine
	for _, t := range []*float64{&e.Base, &e.Layer, &e.PromptLayer, &e.Seq} {
		*t *= h.Host
	}
	return e
}

// A part is a constant that is fitted. pull is the weight of the squared difference between a GPU's value and the
// common one. The values of pull were chosen by fits that leave out points (published/README.md).
type part struct {
	value func(*hosted) *float64
	peak  bool // a part of a peak, between 0 and 1
	pull  float64
}

// pullToStart is the weight of the squared difference between a common constant and its value in start. It
// was chosen by hand.
const pullToStart = 1e-3

var parts = []part{
	{func(e *hosted) *float64 { return &e.Weights }, true, 0.048},
	{func(e *hosted) *float64 { return &e.Compute }, true, 0.048},
	{func(e *hosted) *float64 { return &e.Attention }, true, 0.048},
	{func(e *hosted) *float64 { return &e.PromptAttention }, true, 0.048},
	{func(e *hosted) *float64 { return &e.Activations }, false, 0.048},
	{func(e *hosted) *float64 { return &e.Reread }, true, 0.0095},
	{func(e *hosted) *float64 { return &e.WorkerLink }, true, 0.048},
	{func(e *hosted) *float64 { return &e.AllReduce }, false, 0.048},
	{func(e *hosted) *float64 { return &e.Host }, false, 0.0091},
	{func(e *hosted) *float64 { return &e.Base }, false, 0.33},
	{func(e *hosted) *float64 { return &e.Layer }, false, 0.33},
	{func(e *hosted) *float64 { return &e.PromptLayer }, false, 0.33},
	{func(e *hosted) *float64 { return &e.Seq }, false, 0.33},
}

// open converts a constant to a number without bounds: its logarithm, or the logarithm of its odds if it is a
// fraction.
func (p part) open(v float64) float64 {
	if p.peak {
		v = min(max(v, 1e-3), 1-1e-3)
		return math.Log(v / (1 - v))
	}
	return math.Log(v)
}

func (p part) close(z float64) float64 {
	if p.peak {
		return 1 / (1 + math.Exp(-z))
	}
	return math.Exp(min(max(z, -30), 30))
}
