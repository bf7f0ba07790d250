package class

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"llmmemory/internal/grade"
	"llmmemory/internal/jobs"
)

// A Folder keeps the reports of a class, from run to run.
type Folder struct{ Path string }

// stored is a file of reports/.
type stored struct {
	Name    string // as fileName has it, because a name need not be UTF-8
	File    string
	Key     string        // of everything that the report depends on
	Report  *grade.Report `json:",omitempty"`
	Trouble string        `json:",omitempty"` // why there is no report
}

// NewFolder makes the folder if it is not there.
func NewFolder(path string) (Folder, error) {
	for _, dir := range []string{"reports", "students"} {
		if err := os.MkdirAll(filepath.Join(path, dir), 0o755); err != nil {
			return Folder{}, err
		}
	}
	return Folder{path}, nil
}

// Load returns the report of a submission, if one with that key is there.
func (f Folder) Load(name, key string) (*grade.Report, bool) {
	s, err := read(f.report(name))
	if err != nil || s.Name != fileName(name) || s.Key != key || s.Report == nil {
		return nil, false // it is made anew
	}
	return s.Report, true
}

// Save keeps a report: all of it or, if the machine stops, nothing.
func (f Folder) Save(name, key string, r *grade.Report) error {
	return f.save(name, stored{File: r.File, Key: key, Report: r})
}

// SaveTrouble keeps that a submission could not be graded, so that it is not
// forgotten in a merge. The next run tries again.
func (f Folder) SaveTrouble(s Submission, trouble error) error {
	return f.save(s.Name, stored{File: s.File, Trouble: trouble.Error()})
}

func (f Folder) save(name string, s stored) error {
	s.Name = fileName(name)
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return jobs.Replace(f.report(name), text)
}

func (f Folder) report(name string) string {
	return filepath.Join(f.Path, "reports", fileName(name)+".json")
}

// Page is the path of a student's page inside the folder.
func Page(name string) string { return "students/" + fileName(name) + ".html" }

// fileName is a name that is safe as a file's, and different for different names.
func fileName(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(url.PathEscape(name), "=", "%3D"), "%", "=")
}

func read(path string) (stored, error) {
	var s stored
	text, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", path, err)
	}
	if s.Report == nil && s.Trouble == "" {
		return s, fmt.Errorf("%s: no report", path)
	}
	return s, nil
}

// ErrTwice is wrapped when two folders have different reports of one student.
var ErrTwice = errors.New("graded twice, differently")

// Merge brings the reports of several folders into this one and returns all that
// are in it then, in the order of their names.
func (f Folder) Merge(from []string) ([]Result, error) {
	seen := map[string]stored{}
	where := map[string]string{}
	for _, dir := range append([]string{f.Path}, from...) {
		files, err := os.ReadDir(filepath.Join(dir, "reports"))
		if err != nil {
			return nil, fmt.Errorf("%s: no reports in it: has llmgrade --html written there?", dir)
		}
		for _, entry := range files {
			file := filepath.Join(dir, "reports", entry.Name())
			if !strings.HasSuffix(file, ".json") { // one that is just being written
				continue
			}
			s, err := read(file)
			if err != nil {
				return nil, err
			}
			other, found := seen[s.Name]
			switch {
			case found && s.Report == nil: // it could be graded elsewhere
				continue
			case found && other.Report != nil && other.Key != s.Key:
				return nil, fmt.Errorf("%s: %w in %s and %s: remove one of the two reports", s.Name, ErrTwice, where[s.Name], file)
			}
			seen[s.Name], where[s.Name] = s, file
		}
	}
	var all []Result
	for _, s := range seen {
		name, err := url.PathUnescape(strings.ReplaceAll(s.Name, "=", "%"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where[s.Name], err)
		}
		if err := f.save(name, s); err != nil {
			return nil, err
		}
		r := Result{Submission: Submission{name, s.File}, Report: s.Report}
		if s.Trouble != "" {
			r.Err = errors.New(s.Trouble)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Result) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
