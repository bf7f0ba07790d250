package report

import (
	"cmp"
	"errors"
	"html/template"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/reporting/class"
	"llmmemory/internal/terminal"
)

// An Entry is one submission of a class.
type Entry struct {
	*class.Result
	File   string         // path of the student's page, relative to the class page; empty if there is none
	Before *class.Outcome // outcome of the previous report; nil if there was none
	Graded time.Time      // when the report was made
}

// A Class is the content of the class page.
type Class struct {
	Entries []Entry  // in any order
	Unknown []string // students of overrides.csv who are not in the class
	Gone    []string // students of an earlier run who are not in this one
}

// Write writes the class page: what staff have to look at, the distribution of scores, what has changed, frequent
// mistakes, and the points of each student.
func (c Class) Write(w io.Writer) error {
	entries := slices.Clone(c.Entries)
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File))
	})
	c.Unknown, c.Gone = shownAll(c.Unknown), shownAll(c.Gone)
	page := classPage{Class: c, Tasks: taskTitles[:], Script: script, Policy: policy}
	var scores []float64
	for i := range entries {
		e := &entries[i]
		row := newStudentRow(e)
		page.Students = append(page.Students, row)
		if row.Kind == pending {
			page.Pending++
		}
		if r := e.Report; r != nil && (r.Rejected == nil || r.Rejected.Stage != grade.NoFile) {
			points, _ := e.Score()
			page.Graded++
			scores = append(scores, 100*points/max(r.MaxScore, 1e-9))
			if points >= r.MaxScore {
				page.Full++
			}
		}
	}
	page.Flagged = flagged(page.Students)
	for _, f := range page.Flagged {
		page.Flags += len(f.Rows)
	}
	page.Median = median(scores)
	page.Histogram = histogram(scores)
	page.Changes = changes(entries)
	page.Mistakes = mistakes(entries)
	page.Tests = passRates(entries)
	page.Broken = broken(entries)
	page.Stages = stageTimes(entries)
	return write(w, classLayout, page)
}

func shown(name string) string { return terminal.VisibleName(name) }

func shownAll(names []string) []string {
	all := slices.Clone(names)
	for i := range all {
		all[i] = shown(all[i])
	}
	return all
}

type classPage struct {
	Class
	Graded, Full int
	Pending      int
	Median       float64 // percent
	Tasks        []taskTitle
	Flagged      []flag
	Flags        int // rows of them
	Histogram    bars
	Changes      []change
	Mistakes     []group
	Tests        []passRate
	Broken       []group
	Stages       []stageTime
	Students     []studentRow
	Script       template.JS
	Policy       string
}

// A studentRow is a student in the table of the class.
type studentRow struct {
	Name     string
	URL      string
	Kind     kind   // why it was not run; "" if it was run
	Reason   string // the reason in one line
	Said     string // the whole message of the compiler or the gate, if it is longer
	Report   *grade.Report
	Override *class.Override
	Score    float64
	Known    bool               // whether there is a score
	Tasks    [grade.Tasks]*task // nil where nothing was graded
	Mistakes int
	Remarks  string
}

func newStudentRow(e *Entry) studentRow {
	r := studentRow{Name: shown(e.Name), URL: link(e.File, ""), Report: e.Report, Override: e.Override, Remarks: e.Remarks()}
	r.Score, r.Known = e.Score()
	switch {
	case errors.Is(e.Err, class.ErrPending):
		r.Kind = pending
		return r
	case e.Err != nil || e.Report == nil:
		r.Kind = trouble
		if e.Err != nil {
			r.Reason, _, _ = strings.Cut(strings.TrimSpace(e.Err.Error()), "\n")
			r.Said = longer(e.Err.Error())
		}
		return r
	case e.Report.Rejected != nil:
		r.Kind, r.Reason = kindOf(e.Report.Rejected), e.Report.Rejected.Reason()
		r.Said = longer(e.Report.Rejected.Text)
		r.URL = link(e.File, "rejected")
	}
	r.Mistakes = len(e.Report.Findings)
	for _, t := range tasksOf(e.Report) {
		r.Tasks[t.Number-1] = &t
	}
	return r
}

// Decided reports whether staff set the points.
func (r studentRow) Decided() bool { return r.Override != nil && r.Override.Points != nil }

// Is lists the words by which the script filters.
func (r studentRow) Is() string {
	words := []string{}
	is := func(word string, holds bool) {
		if holds {
			words = append(words, word)
		}
	}
	is("flagged", r.Kind != "")
	is("mistakes", r.Mistakes > 0)
	is("override", r.Override != nil)
	is("full", r.Report != nil && r.Known && r.Score >= r.Report.MaxScore)
	return strings.Join(words, " ")
}

// longer returns a text if it has several lines, otherwise "".
func longer(text string) string {
	if !strings.Contains(strings.TrimSpace(text), "\n") {
		return ""
	}
	return text
}

// link returns a relative URL of a file. The file's name may contain any characters.
func link(file, anchor string) string {
	if file == "" {
		return ""
	}
	return (&url.URL{Path: filepath.ToSlash(file), Fragment: anchor}).String()
}
