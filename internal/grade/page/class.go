package page

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"llmmemory/internal/grade"
)

// An Entry is one submission of a class.
type Entry struct {
	Name    string
	File    string        // of the student's page, relative to that of the class; empty if there is none
	Report  *grade.Report // nil if it could not be graded
	Trouble string        // why it could not
}

// Class writes the page of a class: what staff have to look at, how the scores are
// spread, what most students get wrong, and everybody's points. The order of the
// entries does not matter.
func Class(w io.Writer, entries []Entry) error {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File))
	})
	page := classPage{Tasks: taskTitles[:]}
	var scores []float64
	for i := range entries {
		row := newRow(&entries[i])
		page.Students = append(page.Students, row)
		if row.Flag != "" {
			page.Flagged = append(page.Flagged, row)
		}
		if r := entries[i].Report; r != nil {
			page.Graded++
			scores = append(scores, 100*r.Score/max(r.MaxScore, 1e-9))
			if r.Score >= r.MaxScore {
				page.Full++
			}
		}
	}
	page.Median = median(scores)
	page.Histogram = histogram(scores)
	page.Broken = broken(entries)
	page.Stages = stageTimes(entries)
	return write(w, classLayout, page)
}

type classPage struct {
	Graded, Full int
	Median       float64 // percent
	Tasks        []taskTitle
	Flagged      []row
	Histogram    bars
	Broken       []sentence
	Stages       []stageTime
	Students     []row
}

// A row is a student in a table.
type row struct {
	Name     string
	URL      string
	Flag     string // why staff should look
	Said     string // what the compiler or the gate said
	Report   *grade.Report
	Tasks    [grade.Tasks]*task // nil where nothing was graded
	Mistakes int
}

func newRow(e *Entry) row {
	r := row{Name: e.Name, URL: link(e.File, ""), Report: e.Report}
	switch {
	case e.Report == nil:
		r.Flag, r.Said = "could not be graded", e.Trouble
		return r
	case e.Report.Rejected != nil:
		r.Flag, r.Said = "rejected: "+string(e.Report.Rejected.Stage), e.Report.Rejected.Text
		r.URL = link(e.File, "rejected")
	}
	r.Mistakes = len(e.Report.Findings)
	for _, t := range tasksOf(e.Report) {
		r.Tasks[t.Number-1] = &t
	}
	return r
}

// link is a relative reference to a file, whatever characters its name has.
func link(file, anchor string) string {
	if file == "" {
		return ""
	}
	return (&url.URL{Path: filepath.ToSlash(file), Fragment: anchor}).String()
}

// A sentence of the handout, and who breaks it.
type sentence struct {
	Text     string
	Students []mention
}

// A mention is a student whose page tells of it.
type mention struct{ Name, URL string }

// mostNamed keeps the page of a large class small.
const mostNamed = 40

// broken ranks the sentences by how many students break them.
func broken(entries []Entry) []sentence {
	var all []sentence
	at := map[string]int{}
	for _, e := range entries {
		if e.Report == nil {
			continue
		}
		seen := map[string]bool{}
		for i, f := range e.Report.Findings {
			if f.Sentence == "" || seen[f.Sentence] {
				continue
			}
			seen[f.Sentence] = true
			n, known := at[f.Sentence]
			if !known {
				n = len(all)
				at[f.Sentence] = n
				all = append(all, sentence{Text: f.Sentence})
			}
			all[n].Students = append(all[n].Students, mention{e.Name, link(e.File, fmt.Sprintf("finding-%d", i+1))})
		}
	}
	slices.SortFunc(all, func(a, b sentence) int {
		return cmp.Or(len(b.Students)-len(a.Students), cmp.Compare(a.Text, b.Text))
	})
	return all
}

// Count is how many students break it.
func (s sentence) Count() int { return len(s.Students) }

// Named are those that are named.
func (s sentence) Named() []mention { return s.Students[:min(mostNamed, len(s.Students))] }

// Unnamed is how many are not.
func (s sentence) Unnamed() int { return len(s.Students) - len(s.Named()) }

// A stageTime is how long a stage took.
type stageTime struct {
	Name         string
	Runs         int
	Median, Most time.Duration
}

// Seconds has as many digits as are worth reading.
func (stageTime) Seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

const whole = "everything"

func stageTimes(entries []Entry) []stageTime {
	var order []string
	times := map[string][]time.Duration{}
	for _, e := range entries {
		if e.Report == nil {
			continue
		}
		for _, s := range e.Report.Stages {
			name := string(s.Name)
			if times[name] == nil {
				order = append(order, name)
			}
			times[name] = append(times[name], s.Time)
		}
		times[whole] = append(times[whole], e.Report.Time)
	}
	var all []stageTime
	for _, name := range append(order, whole) {
		if runs := times[name]; len(runs) > 0 {
			all = append(all, stageTime{name, len(runs), median(runs), slices.Max(runs)})
		}
	}
	return all
}

func median[T time.Duration | float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
