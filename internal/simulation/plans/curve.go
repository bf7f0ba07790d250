package plans

import (
	"fmt"
	"io"
	"math"
	"slices"

	"llmmemory/internal/simulation/capacity"
)

// median returns the median of a value over the points of a step. A point whose queue grew without end has no result
// and counts as +Inf. Without this, a rate at which most seeds fail could look better than a lower rate.
func median(s capacity.Step, value func(capacity.Point) float64) float64 {
	var all []float64
	for _, p := range s.Points {
		if p.Result == nil {
			all = append(all, math.Inf(1))
			continue
		}
		all = append(all, value(p))
	}
	return capacity.Median(all)
}

func (r *Report) columns() []column {
	all := []column{{"normalized mean", 0, func(p capacity.Point) float64 { return p.Result.Normalized.Mean }}}
	for i, o := range r.slo {
		c := column{o.Of(), o.Limit, func(p capacity.Point) float64 { return float64(p.Values[i]) }}
		j := slices.IndexFunc(all, func(other column) bool { return other.name == c.name })
		if j < 0 {
			all = append(all, c)
		} else if all[j].limit == 0 || c.limit < all[j].limit {
			all[j].limit = c.limit
		}
	}
	return all
}

type column struct {
	name  string
	limit float64 // s; 0 if there is none
	value func(capacity.Point) float64
}

func (r *Report) writeCurve(w io.Writer) {
	columns := r.columns()
	seeds := len(r.Load.Seeds) > 1
	fmt.Fprintf(w, "\nrequests/s\t%s", map[bool]string{true: "seeds hold", false: "holds"}[seeds])
	for _, c := range columns {
		fmt.Fprintf(w, "\t%s", c.name)
	}
	fmt.Fprint(w, "\tbatch\twaiting\tmemory used\tpreempted\n")
	for _, s := range r.Capacity.Curve {
		hold := 0
		for _, p := range s.Points {
			if p.Holds {
				hold++
			}
		}
		holds := fmt.Sprintf("%d of %d", hold, len(s.Points))
		if !seeds {
			holds = map[int]string{0: "no", 1: "yes"}[hold]
		}
		fmt.Fprintf(w, "%s\t%s", rate(s.Rate), holds)
		for _, c := range columns {
			fmt.Fprintf(w, "\t%s", seconds(median(s, c.value)))
		}
		window := func(value func(capacity.Point) float64) float64 { return median(s, value) }
		if math.IsInf(window(func(capacity.Point) float64 { return 0 }), 1) {
			fmt.Fprint(w, "\tthe queue grows\n")
			continue
		}
		fmt.Fprintf(w, "\t%.1f\t%.1f\t%.0f %%\t%.0f\n",
			window(func(p capacity.Point) float64 { return p.Result.Window.Requests }),
			window(func(p capacity.Point) float64 { return p.Result.Window.Waiting }),
			window(func(p capacity.Point) float64 { return 100 * (1 - p.Result.Window.External) }),
			window(func(p capacity.Point) float64 { return float64(p.Result.Recomputed + p.Result.Swapped) }))
	}
	fmt.Fprintln(w, "These runs are shorter than the one at the top, so its batch and latencies differ.")
	fmt.Fprintln(w, "Batch, waiting and memory are means over a run: in a burst they are more.")
}
