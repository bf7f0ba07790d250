// Package gradescope runs llmgrade in Gradescope. It makes the zip that staff upload, and it grades in the container,
// from the upload to results.json.
//
// Package grade computes the points. This package reports them in Gradescope's format, and keeps the hidden tests from
// students before the due date. A submission that is graded again gets the same result.
//
// Sources: Gradescope's "Autograder Specifications" and "Submission Metadata",
// https://gradescope-autograders.readthedocs.io.
package gradescope

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/reporting/class"
	"llmmemory/internal/jobs"
)

// Root is the folder of everything in the container.
const Root = "/autograder"

// A Config is config.json of the package, for staff to edit.
type Config struct {
	RateLimit string `json:"rate_limit,omitempty"` // text for parseLimit
}

const unfinished = "The grader did not finish, so there is no score yet. " +
	"Please tell the staff, who can run it again. This does not count against a limit on submissions."

// A run grades one submission in Gradescope's container.
type run struct {
	dir     string // has the layout of Root
	log     io.Writer
	points  grade.Points
	grader  func(file string, p grade.Points) (*grade.Report, error)
	limit   Limit
	meta    metadata
	notes   []string
	started time.Time
}

// Run grades dir/submission. It first writes a placeholder without points to dir/results/results.json, and replaces
// it by the results in the end. log is for staff. An error means that the grader failed; the results then say so.
func Run(dir string, log io.Writer) error {
	return (&run{dir: dir, log: log, grader: gradeFile}).write()
}

func gradeFile(file string, p grade.Points) (*grade.Report, error) {
	g, err := grade.NewGrader()
	if err != nil {
		return nil, err
	}
	defer g.Close()
	g.Points = p
	return g.File(file)
}

func (r *run) write() error {
	r.points, r.started = grade.DefaultPoints, time.Now()
	if err := protect(r.results()); err != nil {
		return err
	}
	var err error
	if r.meta, err = readMetadata(filepath.Join(r.dir, "submission_metadata.json")); err != nil {
		r.note("%v", err)
	}
	placeholder := newResults(unfinished)
	r.extra(placeholder.Extra)
	if err := write(r.results(), placeholder); err != nil {
		return err
	}
	out, err := r.run()
	if err != nil {
		r.note("%v", err)
		out = newResults("Your file was not graded, because the autograder failed. That says nothing about your file, and there is no score yet. " +
			"Please tell the staff: they see the error in the autograder's output. This does not count against a limit on submissions.")
	}
	r.extra(out.Extra)
	out.ExecutionTime = math.Ceil(time.Since(r.started).Seconds())
	fmt.Fprintf(r.log, "score %v after %.0f s\n", out.Score, out.ExecutionTime)
	return cmp.Or(write(r.results(), out), err)
}

func (r *run) results() string { return filepath.Join(r.dir, "results") }

func (r *run) note(format string, values ...any) {
	text := fmt.Sprintf(format, values...)
	r.notes = append(r.notes, text)
	fmt.Fprintln(r.log, text)
}

func (r *run) extra(e *Extra) {
	e.Uncounted = r.meta.uncounted()
	e.Notes = slices.Clone(r.notes)
}

func (r *run) run() (Results, error) {
	if err := r.configure(); err != nil {
		return Results{}, err
	}
	if next, refused := r.limit.reached(r.meta.Created, r.limit.counted(&r.meta)); refused {
		return r.refuse(next), nil
	}
	if r.limit.Count > 0 && r.meta.Created.IsZero() {
		r.note("graded without the rate limit, because it is not known when this was submitted")
	}
	u, err := class.ReadUpload(filepath.Join(r.dir, "submission"))
	if errors.Is(err, class.ErrUpload) {
		r.note("%v", err)
		out := newResults("The upload could not be graded: see the test below. It does not count against a limit on submissions.\n")
		out.Tests = []Test{onlyTest("upload", fmt.Sprintf("%v.\nUpload the file %s.\n", err, class.Wanted), r.points.Max())}
		return out, nil
	}
	if err != nil {
		return Results{}, err
	}
	report, err := r.grade(u)
	if err != nil {
		return Results{}, err
	}
	return r.resultsOf(u, report), nil
}

func (r *run) configure() error {
	return errors.Join(
		r.source("points.json", func(text []byte) (err error) {
			r.points, err = grade.ParsePoints(text)
			return err
		}),
		r.source("config.json", func(text []byte) (err error) {
			r.limit, err = parseConfig(text)
			return err
		}),
	)
}

// source reads a file of the package that staff uploaded and calls parse with its text. If there is no such file,
// source does nothing.
func (r *run) source(name string, parse func([]byte) error) error {
	text, err := os.ReadFile(filepath.Join(r.dir, "source", name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = parse(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func parseConfig(text []byte) (Limit, error) {
	var c Config
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil || c.RateLimit == "" {
		return Limit{}, err
	}
	return parseLimit(c.RateLimit)
}

// grade grades the upload. It writes the text to a temporary folder as llm_memory.c, the name that messages use.
func (r *run) grade(u class.Upload) (*grade.Report, error) {
	folder, err := jobs.NewTemporary("llmgrade-upload-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Remove() }()
	file := filepath.Join(folder.Path, class.Wanted)
	if err := os.WriteFile(file, u.Text, 0o600); err != nil {
		return nil, err
	}
	report, err := r.grader(file, r.points)
	if err != nil {
		return nil, err
	}
	if report.Rejected != nil {
		report.Rejected.Text = strings.ReplaceAll(report.Rejected.Text, file, u.Name)
	}
	return report, nil
}

func (r *run) resultsOf(u class.Upload, report *grade.Report) Results {
	tests := tests(report)
	out := newResults(summary(u, report, tests))
	out.Score, out.Tests = report.Score, tests
	out.Extra.Counts = report.Rejected == nil
	out.Extra.Versions = &report.Setting
	out.Extra.Sandbox = report.Setting.Sandbox
	out.Extra.Seed = report.Seed
	for _, s := range report.Stages {
		out.Extra.Stages = append(out.Extra.Stages, Stage{string(s.Name), math.Round(s.Time.Seconds()*1000) / 1000})
	}
	for _, note := range report.Notes {
		r.note("%s", note)
	}
	fmt.Fprintf(r.log, "%s, failed: %s\nsandbox: %s\nseed %d; %s; %s; %s; %s\n", u.Name, strings.Join(report.Failed(), " "),
		report.Setting.Sandbox, report.Seed, report.Setting.GCC, report.Setting.Linker, report.Setting.Libc, report.Setting.Valgrind)
	return out
}

const lastResultsTitle = "\nYour last graded submission:\n\n" // between a refusal and the text of the results that are kept

// refuse returns the results for a submission over the rate limit. They contain a message and the results of the last
// graded submission, so that the student's score stays the same.
func (r *run) refuse(next time.Time) Results {
	r.note("over the rate limit until %s", next.Format(time.RFC3339))
	message := fmt.Sprintf("This submission was not graded, and the score before it stays: at most %s are graded. "+
		"The next one is graded when it is submitted after %s.\n",
		r.limit, next.In(r.meta.Created.Location()).Format("2006-01-02 15:04:05 -07:00"))
	out := newResults(message)
	last := r.meta.last() // there is one, because some count
	out.Score = last.Score
	if last.Results == nil {
		// Without a hidden test, Gradescope would show the sum.
		out.Tests = []Test{{Score: new(float64), Name: "hidden tests", OutputFormat: Text, Visibility: AfterDueDate,
			Output: "What the last graded submission was worth is the score above."}}
		return out
	}
	out.Score, out.Tests = last.Results.Score, last.Results.Tests
	for i := range out.Tests {
		if out.Tests[i].Visibility == "" {
			out.Tests[i].Visibility = AfterDueDate // too late is better than too early
		}
	}
	_, kept, found := strings.Cut(last.Results.Output, lastResultsTitle)
	if !found {
		kept = last.Results.Output
	}
	out.Output += lastResultsTitle + kept
	return out
}
