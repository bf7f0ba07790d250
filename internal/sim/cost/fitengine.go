package cost

import "math"

// pull is how much a constant that is e times its start counts, against a prediction that
// is e times a measurement: enough that what the points say nothing about stays where it is.
const pull = 1e-3

// FitEngine finds the parts of peaks that are reached, and the overheads, with
// the least squares of logarithms of predicted over measured: one part after the
// other is changed by a step that becomes smaller. What is 0 at the start is not fitted,
// nor are links to the host; what only several workers or experts have is fitted where
// there is a point with them.
func FitEngine(points []Published, start Engine) (Engine, error) {
	setups := make([]Setup, len(points))
	start.AllReduce, start.ExpertCompute = 0, 0
	for i, p := range points {
		var err error
		if setups[i], err = p.Setup(start); err != nil {
			return start, err
		}
		if p.Workers > 1 {
			start.AllReduce = setups[i].GPU.LinkLatency
		}
		if setups[i].LLM.Experts > 0 {
			start.ExpertCompute = start.Compute
		}
	}
	badness := func(e Engine) float64 {
		if e.check() != nil {
			return math.Inf(1)
		}
		sum := 0.0
		for i, part := range e.parts() {
			if *part > 0 {
				d := math.Log(*part / *start.parts()[i])
				sum += pull * d * d
			}
		}
		for i, p := range points {
			s := setups[i]
			s.Engine = e
			m, err := s.Model(16)
			if err != nil {
				return math.Inf(1)
			}
			d := math.Log(p.on(m) / p.Seconds())
			sum += d * d
		}
		return sum
	}
	best := start
	least := badness(best)
	for step := 1.6; step > 1.005; {
		better := false
		for part := range best.parts() {
			for _, factor := range []float64{step, 1 / step} {
				e := best
				*e.parts()[part] *= factor
				if got := badness(e); got < least*(1-1e-6) {
					best, least, better = e, got, true
				}
			}
		}
		if !better {
			step = math.Sqrt(step)
		}
	}
	return best, nil
}

// parts are the constants that are fitted.
func (e *Engine) parts() []*float64 {
	return []*float64{
		&e.Weights, &e.Compute, &e.ExpertCompute, &e.Attention, &e.PromptAttention, &e.Reread, &e.SharedReread,
		&e.WorkerLink, &e.AllReduce, &e.Base, &e.Layer, &e.PromptLayer, &e.Seq,
	}
}
