package sizing

import (
	"fmt"
	"math"
	"strings"

	"llmmemory/internal/sim/capacity"
)

// lasts returns for how long the rate was tried, and with which values.
func (r *Report) lasts() string {
	c := r.Capacity
	p := r.atCapacity()
	if c.Tried == 1 {
		return fmt.Sprintf("this rate held for %.0f s of arrivals", p.Span)
	}
	return fmt.Sprintf("this rate, or a higher one, held for %.0f s of arrivals under %s; most of them hold %s/s, and "+
		"do not hold 3 %% more", p.Span, seeds(c), rate(c.Most))
}

// seeds returns under which seeds the answer holds.
func seeds(c capacity.Capacity) string {
	if c.Held == c.Tried {
		return fmt.Sprintf("all %d seeds", c.Tried)
	}
	return fmt.Sprintf("%d of %d seeds", c.Held, c.Tried)
}

// intervals returns the objectives' values with what chance leaves open.
func (r *Report) intervals() string {
	p := r.atCapacity()
	var all []string
	rough := ""
	for i, o := range r.slo {
		v := p.Intervals[i]
		by := interval(v)
		if r.Range != nil {
			by = r.Range.latency(float64(p.Values[i]), o.Metric == capacity.TTFT) + "; by chance alone " + by
		}
		all = append(all, fmt.Sprintf("%s %s (%s)", o.Of(), seconds(float64(p.Values[i])), by))
		if v.Rough {
			rough = ". Rough: too few independent answers for 95 %, the true value may be farther away"
		}
	}
	return strings.Join(all, ", ") + rough
}

func interval(v capacity.Interval) string {
	level := "95 %"
	if v.Rough {
		level = "rough"
	}
	if math.IsInf(float64(v.High), 1) {
		return fmt.Sprintf("%s: at least %s", level, seconds(float64(v.Low)))
	}
	return fmt.Sprintf("%s: %s to %s", level, seconds(float64(v.Low)), seconds(float64(v.High)))
}
