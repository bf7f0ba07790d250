package sweep

import (
	"bytes"
	"path/filepath"

	"llmmemory/internal/jobs"
	"llmmemory/internal/simulation/chart"
)

// Write writes sweep.csv, the figures and index.html to a folder. A figure ends at twice the SLO, in seconds a token.
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
