package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"llmmemory/internal/grade"
	"llmmemory/internal/grade/class"
	"llmmemory/internal/grade/report"
	"llmmemory/internal/jobs"
	"llmmemory/internal/terminal"
)

// pages is what --html writes: the reports, from which an interrupted run resumes, and the
// pages.
type pages struct {
	class.Folder
	overrides class.Overrides
	part      bool // only a part of the class: --shard

	mutex sync.Mutex
	rows  []class.Result // in the order of the class
}

func newPages(dir string) (*pages, error) {
	folder, err := class.NewFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("--html: %w", err)
	}
	overrides, err := folder.Overrides()
	if err != nil {
		return nil, err
	}
	return &pages{Folder: folder, overrides: overrides}, nil
}

// begin makes a row for each submission; finished and add fill it in.
func (p *pages) begin(all []class.Submission, rules string) {
	for _, s := range all {
		p.rows = append(p.rows, class.Result{Submission: s, Rules: rules, Err: errors.New("not graded yet")})
	}
}

// finished writes grades.csv with one more row, so that a run that is killed leaves its results.
// write writes the file again at the end and reports errors.
func (p *pages) finished(name string, r *grade.Report, err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	row := p.row(name)
	row.Report, row.Err = r, err
	_, _ = p.overrides.Apply(p.rows)
	_ = p.table()
}

func (p *pages) row(name string) *class.Result {
	return &p.rows[slices.IndexFunc(p.rows, func(r class.Result) bool { return r.Name == name })]
}

func (p *pages) add(r class.Result) {
	if p != nil {
		p.mutex.Lock()
		defer p.mutex.Unlock()
		*p.row(r.Name) = r
	}
}

func (p *pages) table() error {
	class.Identical(p.rows)
	return p.put("grades.csv", func(w io.Writer) error { return class.WriteCSV(w, p.rows) })
}

// grade returns the stored report or makes one.
func (p *pages) grade(g *grade.Grader, s class.Submission) (r *grade.Report, err error) {
	defer func() { p.finished(s.Name, r, err) }()
	if s.Why != "" {
		r := g.None(s.File, s.Why)
		return r, p.Save(s.Name, "nothing to grade: "+s.Why, r)
	}
	key, err := g.Key(s.File)
	if err != nil {
		return nil, err
	}
	if r, found := p.Load(s.Name, key); found {
		r.File = s.File
		return r, nil
	}
	if r, err = g.File(s.File); err != nil {
		return nil, err
	}
	return r, p.Save(s.Name, key, r)
}

func (p *pages) index() string { return filepath.Join(p.Path, "index.html") }

// write writes grades.csv and the pages. It returns warnings for staff.
func (p *pages) write() (warnings []string, err error) {
	p.mutex.Lock() // after an error, submissions may still be graded
	defer p.mutex.Unlock()
	unknown, err := p.overrides.Apply(p.rows)
	if err != nil {
		return nil, err
	}
	if err := p.table(); err != nil {
		return nil, err
	}
	c := report.Class{Unknown: unknown}
	if _, err := os.Stat(filepath.Join(p.Path, similarPage)); err == nil {
		c.Similar = similarPage
	}
	if !p.part {
		c.Gone = p.Gone(p.rows)
	}
	for i := range p.rows {
		e := report.Entry{Result: &p.rows[i], File: class.Page(p.rows[i].Name)}
		e.Before, e.Graded = p.Before(e.Name)
		if err := p.put(e.File, e.Write); err != nil {
			return nil, err
		}
		c.Entries = append(c.Entries, e)
	}
	for _, same := range identical(p.rows) {
		warnings = append(warnings, "the same file: "+same)
	}
	for _, name := range unknown {
		warnings = append(warnings, fmt.Sprintf("%s: there is no student %s in this class", class.OverridesFile, terminal.VisibleName(name)))
	}
	return warnings, p.put("index.html", c.Write)
}

// identical lists the submissions of each text that several students have handed in.
func identical(all []class.Result) (names []string) {
	seen := map[string]bool{}
	for _, r := range all {
		if len(r.Same) > 0 && !seen[r.Report.Source] {
			seen[r.Report.Source] = true
			names = append(names, terminal.VisibleName(strings.Join(append([]string{r.Name}, r.Same...), ", ")))
		}
	}
	return names
}

// report writes everything and says where.
func (p *pages) report(w io.Writer) error {
	warnings, err := p.write()
	if err != nil {
		return err
	}
	for _, text := range warnings {
		fmt.Fprintln(w, "warning:", text)
	}
	fmt.Fprintln(w, "written:", terminal.Visible(p.index()))
	return nil
}

// put replaces one file of the folder as a whole.
func (p *pages) put(name string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	return jobs.Replace(filepath.Join(p.Path, filepath.FromSlash(name)), b.Bytes())
}
