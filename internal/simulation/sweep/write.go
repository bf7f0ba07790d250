package sweep

import (
	"bytes"
	"fmt"
	"path/filepath"

	"llmmemory/internal/jobs"
	"llmmemory/internal/simulation/chart"
)

// Write writes sweep.csv, the figures and index.html to a folder. The axes of the figures end at twice slo,
// which is in seconds per token.
func (st *State) Write(dir string, slo float64) error {
	var b bytes.Buffer
	if err := st.writeCSV(&b); err != nil {
		return err
	}
	if err := jobs.Replace(filepath.Join(dir, "sweep.csv"), b.Bytes()); err != nil {
		return err
	}
	figures := st.figures(slo)
	if figures == nil {
		return nil
	}
	return chart.Write(dir, figures)
}

// figures returns a figure of latency against rate for each block size. Its axis ends at twice slo.
func (st *State) figures(slo float64) []chart.Figure {
	if st.Grid.closed() {
		return nil
	}
	var all []chart.Figure
	for _, size := range st.Grid.BlockSizes {
		var data chart.Lines
		for _, r := range st.rows() {
			line := chart.Line{Name: r.system}
			for i, c := range r.cells {
				if r.size == size && c.latency.Seeds > 0 {
					line.Points = append(line.Points, chart.Point{X: st.Grid.Rates[i], Value: c.latency})
				}
			}
			if line.Points != nil {
				data = append(data, line)
			}
		}
		if data == nil {
			continue // nothing was answered
		}
		all = append(all, chart.Figure{
			Name:  fmt.Sprintf("latency-block-%d", size),
			Title: fmt.Sprintf("Normalized latency against request rate, blocks of %d tokens", size),
			Kind:  chart.Simulated,
			Seeds: st.Grid.seeds(),
			Note:  st.About,
			Panels: []chart.Panel{{
				X:    "request rate (requests/s)",
				Y:    chart.YAxis{Title: "normalized latency (s/token)", Max: 2 * slo},
				Data: data,
			}},
		})
	}
	return all
}
