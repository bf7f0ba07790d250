package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/reporting/class"
	"llmmemory/internal/homework/grade/reporting/report"
	"llmmemory/internal/jobs"
	"llmmemory/internal/terminal"
)

// pages writes the pages of --html. It also stores the reports, so that a later run can continue an interrupted one.
type pages struct {
	class.Folder
	overrides class.Overrides
	part      bool // only a part of the class: --shard

	mutex sync.Mutex
	rows  []class.Result          // in the order of the class
	pages map[string]report.Entry // by name: those whose page is written
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
	return &pages{Folder: folder, overrides: overrides, pages: map[string]report.Entry{}}, nil
}

// begin makes a row for each submission that this run grades. The parameter all has these submissions. The methods
// finished and add fill the rows later. begin returns an error if a line of overrides.csv cannot be applied.
//
// wholeClass has the submissions of the whole class. With --shard, this run grades only some of them. noFile is the
// report of a student without a file. It has the maximum of the points and the version of the rules.
func (p *pages) begin(all, wholeClass []class.Submission, noFile *grade.Report) error {
	var known []class.Result
	for _, s := range wholeClass {
		known = append(known, class.Result{Submission: s, Report: noFile})
	}
	unknown, err := p.overrides.Apply(known)
	if err == nil && unknown != nil {
		for _, name := range p.Gone(known) {
			known = append(known, class.Result{Submission: class.Submission{Name: name}})
		}
		unknown, _ = p.overrides.Apply(known)
		err = unknown.Unknown()
	}
	for _, s := range all {
		p.rows = append(p.rows, class.Result{Submission: s, Rules: noFile.Rules, Err: class.ErrPending})
	}
	return err
}

// finished writes the page of a submission and grades.csv, so that the results are there even if the run is killed.
// It also writes index.html if fresh is set, that is, if the report is not from an earlier run. It ignores errors,
// because write writes the files again at the end.
func (p *pages) finished(name string, fresh bool, r *grade.Report, err error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	row := p.row(name)
	row.Report, row.Err = r, err
	_, _ = p.overrides.Apply(p.rows)
	_ = p.page(row)
	if fresh {
		_ = p.class(report.Class{})
	}
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

func (p *pages) page(row *class.Result) error {
	e := report.Entry{Result: row, File: class.Page(row.Name)}
	e.Before, e.Graded = p.Before(e.Name)
	p.pages[row.Name] = e
	return p.put(e.File, e.Write)
}

func (p *pages) class(c report.Class) error {
	for i := range p.rows {
		e := p.pages[p.rows[i].Name]
		e.Result = &p.rows[i]
		c.Entries = append(c.Entries, e)
	}
	return p.put("index.html", c.Write)
}

// grade returns the stored report or makes one.
func (p *pages) grade(g *grade.Grader, s class.Submission) (r *grade.Report, err error) {
	fresh := true
	defer func() { p.finished(s.Name, fresh, r, err) }()
	if s.Why != "" {
		r := g.None(s.File, s.Why)
		return r, p.Save(s.Name, "nothing to grade: "+s.Why, r)
	}
	key, err := g.Key(s.File)
	if err != nil {
		return nil, err
	}
	if r, found := p.Load(s.Name, key); found {
		r.File, fresh = s.File, false
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
	for i := range p.rows {
		if row := &p.rows[i]; !errors.Is(row.Err, class.ErrPending) {
			if err := p.page(row); err != nil {
				return nil, err
			}
		}
	}
	for _, group := range identical(p.rows) {
		warnings = append(warnings, "the same file: "+group)
	}
	var names, gone []string
	if !p.part { // the others may be in another part
		gone = p.Gone(p.rows)
	} else {
		unknown = nil
	}
	for _, o := range unknown {
		names = append(names, o.Student)
		warnings = append(warnings, fmt.Sprintf("%s: there is no submission of %s", class.OverridesFile, terminal.VisibleName(o.Student)))
	}
	return warnings, p.class(report.Class{Unknown: names, Gone: gone})
}

// identical finds the groups of students who handed in the same content. For each group it returns one string with
// the names, separated by commas.
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

func (p *pages) put(name string, write func(io.Writer) error) error {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	return jobs.Replace(filepath.Join(p.Path, filepath.FromSlash(name)), b.Bytes())
}
