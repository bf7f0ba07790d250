package sweep

import (
	"bytes"
	"fmt"
	"path/filepath"

	"llmmemory/internal/chart"
	"llmmemory/internal/jobs"
)

// Write writes sweep.csv, the figures and index.html to a folder if no job is
// missing; else nothing is written, and the error wraps ErrMissing. A figure ends
// at twice the SLO, in seconds a token.
func (st *State) Write(dir string, slo float64) error {
	if missing := st.Missing(); len(missing) > 0 {
		return fmt.Errorf("%d of %d jobs are %w, such as %s", len(missing), len(st.Jobs), ErrMissing, missing[0])
	}
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
