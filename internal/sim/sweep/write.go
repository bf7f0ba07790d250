package sweep

import (
	"bytes"
	"path/filepath"

	"llmmemory/internal/jobs"
)

// Write writes sweep.csv to a folder if no job is missing, and returns its path;
// else nothing is written, and the error wraps ErrMissing.
func (st *State) Write(dir string) (string, error) {
	if err := st.whole(); err != nil {
		return "", err
	}
	var b bytes.Buffer
	if err := st.WriteCSV(&b); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "sweep.csv")
	return path, jobs.Replace(path, b.Bytes())
}
