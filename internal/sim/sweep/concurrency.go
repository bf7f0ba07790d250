package sweep

import (
	"fmt"
	"io"
	"text/tabwriter"

	"llmmemory/internal/sim"
)

// writeConcurrencies writes a row for each number of clients: throughput, and latencies as medians and 95th and 99th
// percentiles. Each is the mean over the seeds.
func (st *State) writeConcurrencies(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "system\tblock\tclients\trequests/s\ttokens/s of answers\tfirst token p50, p95, p99\t"+
		"per token p50, p95, p99\twhole answer p50\n")
	part := false
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
		mean := func(of func(r *sim.Result) float64) float64 {
			sum := 0.0
			for _, o := range seeds {
				sum += of(o.Result)
			}
			return sum / float64(len(seeds))
		}
		spread := func(of func(r *sim.Result) sim.Spread) string {
			at := func(of2 func(sim.Spread) float64) string {
				return fmt.Sprintf("%.3g", 1000*mean(func(r *sim.Result) float64 { return of2(of(r)) }))
			}
			return at(func(s sim.Spread) float64 { return s.P50 }) + ", " + at(func(s sim.Spread) float64 { return s.P95 }) +
				", " + at(func(s sim.Spread) float64 { return s.P99 }) + " ms"
		}
		fmt.Fprintf(w, "\t%.3g\t%.0f\t%s\t%s\t%.3g s\n",
			mean(func(r *sim.Result) float64 { return perSecond(r.Answered, r) }),
			mean(func(r *sim.Result) float64 { return perSecond(r.Generated, r) }),
			spread(func(r *sim.Result) sim.Spread { return r.TTFT }),
			spread(func(r *sim.Result) sim.Spread { return r.TPOT }),
			mean(func(r *sim.Result) float64 { return r.EndToEnd.P50 }))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	note := "Each client sends its next request when it has an answer, " + st.Grid.seeds()
	if part {
		note += "; not all requests were answered, as some are too long"
	}
	_, err := fmt.Fprintln(out, note+".\n"+st.About)
	return err
}
