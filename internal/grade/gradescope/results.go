package gradescope

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"llmmemory/internal/grade"
	"llmmemory/internal/jobs"
)

// Results is results.json, as far as it is used here. Every format is named,
// because the default of the text for everything renders HTML.
type Results struct {
	Score            float64    `json:"score"` // of all tests, the hidden ones too
	ExecutionTime    float64    `json:"execution_time"`
	Output           string     `json:"output"`
	OutputFormat     Format     `json:"output_format"`
	StdoutVisibility Visibility `json:"stdout_visibility"`
	Extra            *Extra     `json:"extra_data,omitempty"`
	Tests            []Test     `json:"tests,omitempty"`
}

// A Test is one line of the results. One that was not run and gives no points
// has neither score nor status: there is no status for it, and without a score
// it is none that failed. Where a score is needed, Gradescope makes a status of
// it if there is none.
type Test struct {
	Score        *float64   `json:"score,omitempty"`
	MaxScore     float64    `json:"max_score"`
	Status       Status     `json:"status,omitempty"`
	Name         string     `json:"name"`
	Number       string     `json:"number,omitempty"` // task and place: "2.3"
	Output       string     `json:"output,omitempty"`
	OutputFormat Format     `json:"output_format"`
	Visibility   Visibility `json:"visibility"`
}

// A Status is what Gradescope may be told of a test.
type Status string

// The statuses.
const (
	Passed Status = "passed"
	Failed Status = "failed"
)

// A Visibility says when students see something.
type Visibility string

// The visibilities in use.
const (
	Visible      Visibility = "visible"
	AfterDueDate Visibility = "after_due_date"
	Hidden       Visibility = "hidden"
)

// A Format says how a text is rendered.
type Format string

// Text renders nothing: what is in it may be a student's.
const Text Format = "text"

// Extra is what is stored with the results, for staff and for the submissions
// that follow. Students are not shown it.
type Extra struct {
	// For the rate limit: whether this submission counts, and the times of those
	// before it that do not. Gradescope keeps the results of the latest only.
	Counts    bool        `json:"counts"`
	Uncounted []time.Time `json:"uncounted,omitempty"`

	Versions *grade.Setting `json:"versions,omitempty"`
	Seed     uint64         `json:"seed,omitempty,string"` // as text: JavaScript's numbers are too small
	Sandbox  string         `json:"sandbox,omitempty"`
	Stages   []Stage        `json:"stages,omitempty"`
	Notes    []string       `json:"notes,omitempty"`
}

// A Stage says how long one took.
type Stage struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// newResults is results without points.
func newResults(output string) Results {
	return Results{Output: output, OutputFormat: Text, StdoutVisibility: Hidden, Extra: &Extra{}}
}

// write puts results.json into a folder: whole or not at all, and so that nobody
// but the owner can change it.
func write(dir string, r Results) error {
	path := filepath.Join(dir, "results.json")
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		_ = os.Remove(path) // a link: what it leads to stays as it is
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = jobs.Replace(path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}

// own makes the folder of the results, one where another uid can write nothing.
func own(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("results: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		if err := os.Chmod(dir, mode&^0o022); err != nil {
			return fmt.Errorf("results: others could write there: %w", err)
		}
	}
	return nil
}
