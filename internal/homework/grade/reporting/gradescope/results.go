package gradescope

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/jobs"
)

// Results is the content of results.json, as far as this package uses it. OutputFormat is always set, because
// otherwise Gradescope takes Output for HTML.
type Results struct {
	Score            float64 `json:"score"` // of all tests, including the hidden ones
	ExecutionTime    float64 `json:"execution_time"`
	Output           string  `json:"output"`
	OutputFormat     string  `json:"output_format"`
	StdoutVisibility string  `json:"stdout_visibility"`
	Extra            *Extra  `json:"extra_data,omitempty"`
	Tests            []Test  `json:"tests,omitempty"`
}

// A Test is a test in results.json. A test that was not run and earns no points has neither score nor status:
// Gradescope has no status for it, and would derive one from a score.
type Test struct {
	Score        *float64 `json:"score,omitempty"`
	MaxScore     float64  `json:"max_score"`
	Status       string   `json:"status,omitempty"`
	Name         string   `json:"name"`
	Number       string   `json:"number,omitempty"` // task and place: "2.3"
	Output       string   `json:"output,omitempty"`
	OutputFormat string   `json:"output_format"`
	Visibility   string   `json:"visibility"`
}

// The values of a Test's fields. Gradescope shows a Text as it is, so markup in a student's text has no effect.
const (
	Passed = "passed"
	Failed = "failed"

	Visible      = "visible"
	AfterDueDate = "after_due_date"
	Hidden       = "hidden"

	Text = "text"
)

// Extra is stored with the results, for staff and for the grading of later submissions. Students do not see it.
type Extra struct {
	// Counts says whether this submission counts against the limit. Uncounted has the times of earlier submissions
	// that do not count. Each result repeats these times, because Gradescope keeps only the results of the latest
	// submission.
	Counts    bool        `json:"counts"`
	Uncounted []time.Time `json:"uncounted,omitempty"`

	Versions *grade.Setting `json:"versions,omitempty"`
	Seed     uint64         `json:"seed,omitempty,string"` // as text, because JavaScript's numbers are too small
	Sandbox  string         `json:"sandbox,omitempty"`
	Stages   []Stage        `json:"stages,omitempty"`
	Notes    []string       `json:"notes,omitempty"`
}

// A Stage is the duration of a stage.
type Stage struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

func newResults(output string) Results {
	return Results{Output: output, OutputFormat: Text, StdoutVisibility: Hidden, Extra: &Extra{}}
}

// write replaces results.json in a folder atomically. The new file can be changed only by its owner.
func write(dir string, r Results) error {
	path := filepath.Join(dir, "results.json")
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		_ = os.Remove(path) // a link: its target stays unchanged
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

// protect creates the folder of the results if necessary, and forbids other users to write to it.
func protect(dir string) error {
	err := os.MkdirAll(dir, 0o755)
	info, statErr := os.Stat(dir)
	if err = cmp.Or(err, statErr); err == nil && info.Mode()&0o022 != 0 {
		err = os.Chmod(dir, info.Mode().Perm()&^0o022)
	}
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	return nil
}
