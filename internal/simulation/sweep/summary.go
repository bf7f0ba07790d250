package sweep

import (
	"fmt"
	"io"
	"text/tabwriter"

	"llmmemory/internal/simulation/chart"
)

// DefaultSLO is the highest mean normalized latency, in seconds per token, of a rate that counts as sustained. The
// axes of the paper's Fig. 12 and 14 end at twice this latency.
const DefaultSLO = 0.5

// A cell has the results of all seeds at one rate.
type cell struct {
	latency chart.Value // mean normalized latency in s/token, over the seeds with answers
	failed  bool        // a run failed
	part    bool        // not all requests were answered
}

// A row has the results of one system and block size, with one cell for each rate or concurrency.
type row struct {
	system string
	size   int
	cells  []cell
}

func (st *State) rows() []row {
	var all []row
	next := 0
	for _, system := range st.Grid.Systems {
		for _, size := range st.Grid.BlockSizes {
			r := row{system: system, size: size}
			for range st.Grid.loads() {
				seeds := len(st.Grid.Seeds)
				r.cells = append(r.cells, summarize(st.Outcomes[next:next+seeds]))
				next += seeds
			}
			all = append(all, r)
		}
	}
	return all
}

func summarize(seeds []*Outcome) cell {
	var c cell
	var values []float64
	for _, o := range seeds {
		if o.Result == nil {
			c.failed = true
			continue
		}
		c.part = c.part || o.Result.Answered < o.Result.Arrived
		if o.Result.Answered > 0 {
			values = append(values, o.Result.Normalized.Mean)
		}
	}
	c.latency = chart.Average(values)
	return c
}

func (c cell) meets(slo float64) bool {
	return !c.failed && c.latency.Seeds > 0 && c.latency.Mean <= slo
}

// sustained returns the number of rates below the first rate that misses the SLO. If none misses it, sustained
// returns the number of all rates.
func (r row) sustained(slo float64) int {
	for n, c := range r.cells {
		if !c.meets(slo) {
			return n
		}
	}
	return len(r.cells)
}

// WriteSummary writes a table with the mean normalized latency of each system and block size at each rate. Its last
// column is the highest rate up to which all rates meet slo, in seconds per token. If the grid has concurrencies
// instead of rates, WriteSummary writes a table with throughput and latencies.
func (st *State) WriteSummary(out io.Writer, slo float64) error {
	if st.Grid.closed() {
		return st.writeConcurrencies(out)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "system\tblock\t")
	for _, rate := range st.Grid.Rates {
		fmt.Fprintf(w, "%v/s\t", rate)
	}
	fmt.Fprintf(w, "up to %v s/token\n", slo)
	part := false
	for _, r := range st.rows() {
		fmt.Fprintf(w, "%s\t%d\t", r.system, r.size)
		for _, c := range r.cells {
			part = part || c.part
			fmt.Fprintf(w, "%s\t", c)
		}
		fmt.Fprintf(w, "%s\n", st.highest(r.sustained(slo)))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	note := "Mean normalized latency in s/token, " + st.Grid.seeds()
	if part {
		note += "; *: of what was answered, which is not all that arrived"
	}
	_, err := fmt.Fprintln(out, note+".")
	return err
}

func (st *State) highest(n int) string {
	rates := st.Grid.Rates
	switch n {
	case 0:
		return fmt.Sprintf("below %v/s", rates[0])
	case len(rates):
		return fmt.Sprintf("%v/s or more", rates[n-1])
	}
	return fmt.Sprintf("%v/s", rates[n-1])
}

func (c cell) String() string {
	text := "-"
	switch {
	case c.failed:
		text = "failed"
	case c.latency.Seeds > 0:
		text = fmt.Sprintf("%.3g", c.latency.Mean)
	}
	if c.part {
		text += "*"
	}
	return text
}

func (g Grid) seeds() string {
	n := len(g.Seeds)
	first, last := g.Seeds[0], g.Seeds[n-1]
	switch {
	case n == 1:
		return fmt.Sprintf("seed %d", first)
	case last-first == uint64(n-1):
		return fmt.Sprintf("seeds %d-%d", first, last)
	}
	return fmt.Sprintf("%d seeds from %d to %d", n, first, last)
}
