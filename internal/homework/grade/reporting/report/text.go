package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/fatih/color"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade"
	"llmmemory/internal/terminal"
)

const maxSteps = 12 // of a trace that are shown

var (
	good  = color.New(color.FgGreen)
	bad   = color.New(color.FgRed, color.Bold)
	title = color.New(color.Bold)
	faint = color.New(color.Faint)
)

// WriteText writes a whole report: the findings, the stages by task, and the score. It uses colours if standard output
// is a terminal and NO_COLOR is not set (package color).
func WriteText(w io.Writer, r *grade.Report) error {
	var b strings.Builder
	for _, f := range r.Findings {
		f = visible(f)
		picture := Drawing(f.Scene, f.Difference, 78, !color.NoColor)
		text := strings.TrimSpace(strings.TrimRight(message(f)+"\n\n"+picture, "\n") + "\n\n" + seen(f, r.Replay))
		text = strings.ReplaceAll(strings.ReplaceAll(text, "\n", "\n  "), "\n  \n", "\n\n")
		fmt.Fprintf(&b, "%s\n  %s\n\n", title.Sprint(f.Headline()), text)
	}
	for _, a := range r.Advice {
		fmt.Fprintf(&b, "%s\n", faint.Sprint("advice, which costs nothing: "+a.Name))
		if a.Sentence != "" {
			fmt.Fprintf(&b, "  handout:  %s\n", a.Sentence)
		}
		fmt.Fprintf(&b, "  %s\n\n", terminal.Visible(a.Text))
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", terminal.Visible(note))
	}
	stages(&b, r)
	if r.Rejected != nil {
		fmt.Fprintf(&b, "%s\n", terminal.Visible(r.Rejected.Text))
	} else {
		fmt.Fprintf(&b, "%s\n", faint.Sprintf("rules %s; seed %d; %s; %s; %s; %s; sandbox: %s", r.Rules, r.Seed, r.Setting.GCC, r.Setting.Linker, r.Setting.Libc, r.Setting.Valgrind, r.Setting.Sandbox))
	}
	if r.Replay {
		word := good.Sprint("nothing differs")
		if len(r.Findings) > 0 {
			word = bad.Sprint("something differs")
		}
		fmt.Fprintf(&b, "%s: %s\n", terminal.VisibleName(r.File), word)
	} else {
		b.WriteString(scoreLine(r))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteLine writes a report as one line: the file, the score and, if the submission was not run, the reason.
func WriteLine(w io.Writer, r *grade.Report) error {
	line := strings.TrimSuffix(scoreLine(r), "\n")
	if r.Rejected != nil {
		line += ": " + terminal.VisibleName(r.Rejected.Reason())
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

func scoreLine(r *grade.Report) string {
	score := good
	if r.Score < r.MaxScore {
		score = bad
	}
	points := fmt.Sprintf("%.1f of %s points", r.Score, strconv.FormatFloat(r.MaxScore, 'f', -1, 64))
	return fmt.Sprintf("%s: %s\n", terminal.VisibleName(r.File), score.Sprint(points))
}

// visible returns a finding without control characters.
func visible(f grade.Finding) grade.Finding {
	f.Lines = slices.Clone(f.Lines)
	for i := range f.Lines {
		f.Lines[i] = terminal.Visible(f.Lines[i])
	}
	if f.Difference != nil {
		d := *f.Difference
		d.Field, d.Expected, d.Actual = terminal.Visible(d.Field), terminal.Visible(d.Expected), terminal.Visible(d.Actual)
		f.Difference = &d
	}
	return f
}

// stages writes a table with the status of each stage and task, unless all have passed.
func stages(b *strings.Builder, r *grade.Report) {
	all := r.AllStages()
	if r.Replay || r.Rejected != nil || !slices.ContainsFunc(all, func(s grade.Stage) bool { return s.Status() != grade.Passed }) {
		return
	}
	fmt.Fprintf(b, "%-18s", "")
	for task := 1; task <= grade.Tasks; task++ {
		fmt.Fprintf(b, "%-9s", fmt.Sprintf("task %d", task))
	}
	for _, s := range all {
		fmt.Fprintf(b, "\n%-18s", s.Name)
		for _, status := range s.Tasks {
			paint := map[grade.Status]*color.Color{grade.Passed: good, grade.Failed: bad, grade.NotRun: faint}[status]
			b.WriteString(paint.Sprintf("%-9s", status))
		}
	}
	fmt.Fprintf(b, "\n%-18s", "points")
	for _, p := range r.ByTask() {
		fmt.Fprintf(b, "%-9.1f", p)
	}
	b.WriteString("\n")
}

func seen(f grade.Finding, replay bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seen in:  %s\n", f.Name)
	if len(f.Same) > 0 {
		fmt.Fprintf(&b, "also in:  %s\n", strings.Join(f.Same, ", "))
	}
	if f.Gain > 0 && !replay {
		fmt.Fprintf(&b, "fixing it gives back %s\n", title.Sprintf("+%.1f points", f.Gain))
	}
	return b.String()
}

func message(f grade.Finding) string {
	var b strings.Builder
	for _, line := range f.Lines {
		if line != f.Actual {
			fmt.Fprintf(&b, "%s\n", line)
		}
	}
	if f.Sentence != "" {
		fmt.Fprintf(&b, "handout:  %s\n", f.Sentence)
	}
	fmt.Fprintf(&b, "%s\nexpected: %s\nactual:   %s\n", f.Field, f.Expected, f.Actual)
	if f.Difference != nil && f.Said != "" {
		fmt.Fprintf(&b, "stderr:   %s\n", strings.ReplaceAll(f.Said, "\n", "\n          "))
	}
	if steps := f.Steps(); len(steps) > 0 {
		b.WriteString("after:\n")
		if left := len(steps) - maxSteps; left > 0 {
			fmt.Fprintf(&b, "  (%d steps before)\n", left)
			steps = steps[left:]
		}
		for _, op := range steps {
			fmt.Fprintf(&b, "  %s\n", Step(op))
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Step returns a step of a trace as text. If the step makes a large pool, the text ends with a comment that gives the
// size of the pool.
func Step(op trace.Op) string {
	if op.Large() {
		return fmt.Sprintf("%s    # %s", op, largePool(op))
	}
	return op.String()
}
