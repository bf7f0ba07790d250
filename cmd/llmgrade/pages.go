package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

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
	results   []class.Result
	part      bool // only a part of the class: --shard

	mutex sync.Mutex
	rows  []class.Result // rows of grades.csv during the run, in the order of the class
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

// begin makes a row for each submission; finished fills it in.
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
	if i := slices.IndexFunc(p.rows, func(r class.Result) bool { return r.Name == name }); i >= 0 {
		p.rows[i].Report, p.rows[i].Err = r, err
	}
	_, _ = p.overrides.Apply(p.rows)
	_ = p.table(p.rows)
}

func (p *pages) table(rows []class.Result) error {
	class.Identical(rows)
	return p.put("grades.csv", func(w io.Writer) error { return class.WriteCSV(w, rows) })
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

func (p *pages) add(r class.Result) {
	if p != nil {
		p.results = append(p.results, r)
	}
}

func (p *pages) index() string { return filepath.Join(p.Path, "index.html") }

// write writes grades.csv and the pages. It returns warnings for staff.
func (p *pages) write() (warnings []string, err error) {
	unknown, err := p.overrides.Apply(p.results)
	if err != nil {
		return nil, err
	}
	if err := p.table(p.results); err != nil {
		return nil, err
	}
	c := report.Class{Unknown: unknown}
	if _, err := os.Stat(filepath.Join(p.Path, similarPage)); err == nil {
		c.Similar = similarPage
	}
	if !p.part {
		c.Gone = p.Gone(p.results)
	}
	for i := range p.results {
		e := report.Entry{Result: &p.results[i], File: class.Page(p.results[i].Name)}
		e.Before, e.Graded = p.Before(e.Name)
		if errors.Is(e.Err, context.Canceled) {
			e.File = "" // an earlier run may have made the page; the next run will update it
		} else if err := p.put(e.File, e.Write); err != nil {
			return nil, err
		}
		c.Entries = append(c.Entries, e)
	}
	for _, same := range identical(p.results) {
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

func mergeCommand() *cobra.Command {
	var html string
	c := &cobra.Command{
		Use:     "merge --html OUT DIR...",
		Short:   "Merge the folders of several machines",
		Long:    "merge takes the reports from folders that llmgrade --html has written, on one machine or several,\nand writes the pages and grades.csv of all of them.",
		Example: "  llmgrade merge --html grades part1 part2 part3",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := newPages(html)
			if err != nil {
				return err
			}
			if p.results, err = p.Merge(args); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%d submissions: %s\n", len(p.results), terminal.Visible(p.index()))
			for _, s := range p.MissingShards() {
				fmt.Fprintf(c.ErrOrStderr(), "warning: no folder has shard %v: its submissions are missing\n", s)
			}
			return p.report(c.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&html, "html", "", "write to this `FOLDER`")
	_ = c.MarkFlagRequired("html")
	return c
}

func pointsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "points",
		Short:   "Print a points file to edit",
		Long:    "points prints how many points each task has, and how many percent of them its directed traces, the\nhidden traces and the memory checks give. Edit what is printed and pass it with --points.",
		Example: "  llmgrade points >points.json\n  llmgrade --points points.json llm_memory.c",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := json.MarshalIndent(grade.DefaultPoints, "", "  ")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s\n", text)
			return err
		},
	}
}
