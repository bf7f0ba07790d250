package sweep

import (
	"fmt"
	"io"
	"text/tabwriter"

	"llmmemory/internal/simulation/sim"
)

// writeConcurrencies writes a table with a row for each system, block size and number of clients: throughput, p50, p95
// and p99 of the times to the first token and per token, and p50 of the times of whole answers. Values are means over
// the seeds. If the jobs have ranges, throughput and the first two p50 are followed by the range in which they lie if
// times are within the cost model's margin. A row without latencies says why.
func (st *State) writeConcurrencies(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "system\tblock\tclients\trequests/s\ttokens/s of answers\tfirst token p50, p95, p99\t"+
		"per token p50, p95, p99\twhole answer p50\n")
	part, ranges := false, false
	for next := 0; next < len(st.Outcomes); next += len(st.Grid.Seeds) {
		seeds := st.Outcomes[next : next+len(st.Grid.Seeds)]
		j := seeds[0].Job
		fmt.Fprintf(w, "%s\t%d\t%d", j.System, j.BlockSize, j.MaxConcurrency)
		c := summarize(seeds)
		if c.failed || c.latency.Seeds == 0 {
			fmt.Fprintf(w, "\t%s\n", c)
			continue
		}
		part = part || c.part
		ranges = ranges || len(seeds[0].Range) > 0
		spread := func(latency func(r *sim.Result) sim.Spread) string {
			milli := func(statistic func(sim.Spread) float64) func(r *sim.Result) float64 {
				return func(r *sim.Result) float64 { return 1000 * statistic(latency(r)) }
			}
			return withRange(seeds, "%.3g", milli(func(s sim.Spread) float64 { return s.P50 })) +
				fmt.Sprintf(", %.3g, %.3g ms", mean(seeds, milli(func(s sim.Spread) float64 { return s.P95 })),
					mean(seeds, milli(func(s sim.Spread) float64 { return s.P99 })))
		}
		fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\t%.3g s\n", withRange(seeds, "%.3g", requestRate),
			withRange(seeds, "%.0f", tokenRate), spread(func(r *sim.Result) sim.Spread { return r.TTFT }),
			spread(func(r *sim.Result) sim.Spread { return r.TPOT }),
			mean(seeds, func(r *sim.Result) float64 { return r.EndToEnd.P50 }))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	note := "Each client sends its next request when it has an answer, " + st.Grid.seeds()
	if part {
		note += "; not all requests were answered, as some are too long"
	}
	if ranges {
		note += "; in parentheses: the range of throughput and p50"
	}
	_, err := fmt.Fprintln(out, note+".\n"+st.About)
	return err
}

func mean(seeds []*Outcome, quantity func(r *sim.Result) float64) float64 {
	sum := 0.0
	for _, o := range seeds {
		sum += quantity(o.Result)
	}
	return sum / float64(len(seeds))
}

// withRange formats the mean of a quantity over the seeds. If the quantity has ranges, the mean is followed by the
// means of their ends.
func withRange(seeds []*Outcome, format string, quantity func(r *sim.Result) float64) string {
	text := fmt.Sprintf(format, mean(seeds, quantity))
	low, high := 0.0, 0.0
	for _, o := range seeds {
		if len(o.Range) == 0 {
			return text
		}
		a, b := o.rangeOf(quantity)
		low += a / float64(len(seeds))
		high += b / float64(len(seeds))
	}
	return text + fmt.Sprintf(" ("+format+" to "+format+")", low, high)
}
