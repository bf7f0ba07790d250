package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/homework/grade/reporting/class"
	"llmmemory/internal/homework/grade/reporting/report"
	"llmmemory/internal/homework/grade/reporting/reproduce"
	"llmmemory/internal/jobs"
	"llmmemory/internal/terminal"
)

func (o *options) run(c *cobra.Command, args []string, status *int) error {
	all, err := class.Find(args)
	if err != nil {
		return err
	}
	whole := all
	var shard jobs.Shard
	if o.shard != "" {
		if shard, err = jobs.ParseShard(o.shard); err != nil {
			return fmt.Errorf("--shard: %w", err)
		}
		all = jobs.Part(shard, all)
	}
	if (o.trace != "" || o.main != "") && len(all) != 1 {
		return errors.New("--trace and --main are for one submission")
	}
	var pages *pages
	if o.html != "" {
		if pages, err = newPages(o.html); err != nil {
			return err
		}
		if pages.part = o.shard != ""; pages.part {
			if err := pages.NoteShard(shard); err != nil {
				return err
			}
		}
	}
	g, grader, err := o.grader(pages)
	if err != nil {
		return err
	}
	defer g.Close()
	if pages != nil {
		if err := pages.begin(all, whole, g.None("", "")); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, func() {
		stop() // a second interruption ends the process at once
		fmt.Fprintln(c.ErrOrStderr(), "llmgrade: interrupted: what is being graded is finished first; interrupt again to stop at once")
	})
	failed := o.all(ctx, c.OutOrStdout(), c.ErrOrStderr(), all, g.Version(), grader, pages, status)
	if pages != nil {
		if err := pages.report(c.ErrOrStderr()); err != nil {
			return errors.Join(failed, err)
		}
	}
	return failed
}

// all grades all submissions. rules is the version of the grading rules. A submission that cannot be graded does not
// stop the others.
func (o *options) all(ctx context.Context, w, said io.Writer, all []class.Submission, rules string, grader func(class.Submission) (*grade.Report, error), pages *pages, status *int) error {
	progress, done := terminal.NewProgress("files graded"), 0
	shown := len(all) > 1 && terminal.StderrIsTerminal()
	var failed error
	before := "" // the first submission that was not graded because of an interruption
	for r := range class.Run(ctx, all, o.jobs, rules, grader) {
		if done++; shown {
			progress.Show(done, len(all))
		}
		if errors.Is(r.Err, context.Canceled) { // finished submissions still get their pages
			if before == "" {
				before = r.Name
			}
			r.Err = fmt.Errorf("%w: the run was interrupted", class.ErrPending)
			pages.add(r)
			continue
		}
		if r.Err != nil {
			if pages != nil {
				failed = errors.Join(failed, pages.SaveTrouble(r))
			}
			pages.add(r)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.File, r.Err))
			if o.json {
				if err := writeLine(w, line{File: r.File, Failed: []string{}, Rules: r.Rules, Trouble: r.Err.Error()}); err != nil {
					return err
				}
			}
			continue
		}
		if r.Report.Score < r.Report.MaxScore || r.Report.Replay && len(r.Report.Findings) > 0 {
			*status = fewerPoints
		}
		progress.Clear()
		if err := o.write(w, said, r.Report, pages != nil); err != nil {
			return err
		}
		pages.add(r)
	}
	progress.Clear()
	if before != "" {
		failed = errors.Join(failed, fmt.Errorf("interrupted before %s; with --html, the same command goes on from there", before))
	}
	return failed
}

func (o *options) grader(pages *pages) (*grade.Grader, func(class.Submission) (*grade.Report, error), error) {
	points, err := parsed(o.points, grade.DefaultPoints, grade.ParsePoints)
	if err != nil {
		return nil, nil, err
	}
	gate, err := parsed(o.gate, nil, build.ParseGate)
	if err != nil {
		return nil, nil, err
	}
	ops, err := parsed(o.replay, nil, func(text []byte) ([]trace.Op, error) { return trace.Parse(string(text)) })
	if err != nil {
		return nil, nil, err
	}
	if err := grade.CheckTools(o.only == "" && o.replay == ""); err != nil {
		return nil, nil, err
	}
	g, err := grade.NewGrader()
	if err != nil {
		return nil, nil, err
	}
	g.SetGate(gate)
	g.Seed, g.Only, g.AllStages, g.Points = o.seed, o.only, o.allStages, points
	switch {
	case o.replay != "":
		return g, given(g, func(s class.Submission) (*grade.Report, error) { return g.Replay(s.File, ops) }), nil
	case pages != nil:
		return g, func(s class.Submission) (*grade.Report, error) { return pages.grade(g, s) }, nil
	default:
		return g, given(g, func(s class.Submission) (*grade.Report, error) { return g.File(s.File) }), nil
	}
}

// parsed reads and parses the file that a flag names. If the flag names no file, parsed returns fallback.
func parsed[T any](file string, fallback T, parse func([]byte) (T, error)) (T, error) {
	if file == "" {
		return fallback, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fallback, err
	}
	value, err := parse(text)
	if err != nil {
		return fallback, fmt.Errorf("%s: %w", file, err)
	}
	return value, nil
}

// given returns a function that calls grader. If a submission has no file to grade, the function returns a report
// without points instead.
func given(g *grade.Grader, grader func(class.Submission) (*grade.Report, error)) func(class.Submission) (*grade.Report, error) {
	return func(s class.Submission) (*grade.Report, error) {
		if s.Why != "" {
			return g.None(s.File, s.Why), nil
		}
		return grader(s)
	}
}

// write prints a report: in one line if there are pages.
func (o *options) write(w, said io.Writer, r *grade.Report, brief bool) error {
	if o.trace != "" || o.main != "" {
		if err := o.writeFinding(said, r); err != nil {
			return errors.Join(err, report.WriteText(w, r))
		}
	}
	switch {
	case o.json:
		return writeJSON(w, r)
	case brief:
		return report.WriteLine(w, r)
	default:
		return report.WriteText(w, r)
	}
}

// writeFinding writes the first finding that has a trace to the files of --trace and --main. If no finding has a
// trace, it prints for each of these files that it was not written, and whether it exists from an earlier run.
func (o *options) writeFinding(said io.Writer, r *grade.Report) error {
	for _, f := range r.Findings {
		if len(f.Ops) == 0 {
			continue
		}
		for file, text := range map[string]string{o.trace: f.Trace(), o.main: reproduce.Program(f.Name, f.Ops, f.Difference)} {
			if file == "" {
				continue
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	for _, file := range []string{o.trace, o.main} {
		if file == "" {
			continue
		}
		line := fmt.Sprintf("llmgrade: %s shows no difference in a trace: %s was not written", r.File, file)
		if _, err := os.Lstat(file); err == nil {
			line += "; the file of that name is from before"
		}
		if _, err := fmt.Fprintln(said, line); err != nil {
			return err
		}
	}
	return nil
}

// A line is what --json prints for one submission.
type line struct {
	File     string        `json:"file"`
	Score    *float64      `json:"score,omitempty"` // absent if there was trouble, and for a replay
	MaxScore float64       `json:"max_score"`
	Rejected string        `json:"rejected,omitempty"` // no file, gate, compile or attack
	Reason   string        `json:"reason,omitempty"`   // why it was rejected
	Failed   []string      `json:"failed"`
	Findings []findingLine `json:"findings,omitempty"`
	Seconds  float64       `json:"seconds"`
	Rules    string        `json:"rules"`             // the version of the rules
	Trouble  string        `json:"trouble,omitempty"` // why it could not be graded
}

// A findingLine is a finding of a line.
type findingLine struct {
	Name     string   `json:"name"`
	Task     int      `json:"task"`
	Headline string   `json:"headline"`        // what is wrong, in one sentence
	Gain     float64  `json:"gain"`            // points that fixing it gives back
	Lines    []string `json:"lines,omitempty"` // lines of llm_memory.c
	Stderr   string   `json:"stderr,omitempty"`
	Sentence string   `json:"sentence"` // of the handout
	Actual   string   `json:"actual"`
	Expected string   `json:"expected"`
}

func writeJSON(w io.Writer, r *grade.Report) error {
	l := line{File: r.File, Score: &r.Score, MaxScore: r.MaxScore, Failed: r.Failed(), Seconds: r.Time.Seconds(), Rules: r.Rules}
	if r.Rejected != nil {
		l.Rejected, l.Reason = string(r.Rejected.Stage), r.Rejected.Text
	}
	for _, f := range r.Findings {
		l.Findings = append(l.Findings,
			findingLine{f.Name, f.Task, f.Headline(), f.Gain, f.Lines, f.Said, f.Sentence, f.Actual, f.Expected})
	}
	if r.Replay && r.Rejected == nil { // a replay gives no points
		l.Score = nil
	}
	return writeLine(w, l)
}

// writeLine writes a line of JSON. It escapes control characters that JSON allows in strings, because the output may
// be a terminal.
func writeLine(w io.Writer, l line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, r := range string(text) {
		if unicode.In(r, unicode.Cc, unicode.Bidi_Control) {
			fmt.Fprintf(&b, "\\u%04x", r)
			continue
		}
		b.WriteRune(r)
	}
	_, err = fmt.Fprintln(w, b.String())
	return err
}
