package gradescope

import (
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/reporting/class"
	"llmmemory/internal/homework/grade/reporting/report"
	"llmmemory/internal/homework/grade/reporting/reproduce"
)

const (
	maxText  = 16 << 10 // bytes
	maxSteps = 40       // last steps of a trace
)

// finding writes a finding: what is wrong, the violated sentence of the handout, the steps, the difference, a drawing,
// the lines of the finding, the points that a correction gives back, the other traces with the same mistake, and a
// program that shows the mistake. It leaves out parts that the finding does not have, and the program if there are more
// than maxSteps steps. written is the sentence that the text already quotes above the finding. finding does not write
// this sentence again.
func (s *sheet) finding(b *strings.Builder, f *grade.Finding, written string) {
	fmt.Fprintf(b, "\n%s.\n", f.Headline())
	if f.Sentence != "" && f.Sentence != written {
		fmt.Fprintf(b, "The handout: %s\n", f.Sentence)
	}
	steps := f.Steps()
	start := max(0, len(steps)-maxSteps)
	if steps != nil {
		b.WriteString("After these steps (llmgrade --replay plays them again):\n")
		if start > 0 {
			fmt.Fprintf(b, "    # %d steps before\n", start)
		}
		for _, op := range steps[start:] {
			fmt.Fprintf(b, "    %s\n", report.Step(op))
		}
	}
	if f.Difference != nil {
		fmt.Fprintf(b, "%s\n    expected: %s\n    actual:   %s\n", f.Field, f.Expected, f.Actual)
	}
	if picture := report.Drawing(f.Scene, f.Difference, 0, false); picture != "" {
		fmt.Fprintf(b, "\n%s\n", strings.TrimRight(picture, "\n"))
	}
	lines(b, f)
	if gain := s.gain(f); gain > 0 {
		fmt.Fprintf(b, "Fixing it gives back +%.2f points in the visible tests.\n", gain)
	}
	if others := slices.DeleteFunc(slices.Clone(f.Same), hiddenTrace); len(others) > 0 {
		fmt.Fprintf(b, "The same mistake shows in: %s\n", strings.Join(others, ", "))
	}
	if steps != nil && start == 0 {
		fmt.Fprintf(b, "\nThe same as a program:\n\n%s\n", reproduce.Program(f.Name, f.Ops, f.Difference))
	}
}

// gain returns the points that a student gets in directed tests by correcting the mistake of a finding. It does not
// count points of the hidden tests, because the student must not learn their results. It does not count points of
// memory tests either.
func (s *sheet) gain(f *grade.Finding) float64 {
	gain := 0.0
	for _, t := range s.Tests {
		if t.Part == grade.PartDirected && (t.Name == f.Name || slices.Contains(f.Same, t.Name)) {
			gain += t.MaxScore - t.Score
		}
	}
	return gain
}

// lines writes the lines of a finding. It omits a line that equals the actual value of the difference, because this
// value is already written.
func lines(b *strings.Builder, f *grade.Finding) {
	for _, line := range f.Lines {
		if f.Difference == nil || line != f.Actual {
			fmt.Fprintf(b, "%s\n", line)
		}
	}
}

func short(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "\n(the rest is left out)\n"
}

// summary returns the text above the tests. It describes only the visible tests, and states no sum of points.
func summary(u class.Upload, r *grade.Report, tests []Test) string {
	var b strings.Builder
	if u.Name != class.Wanted {
		fmt.Fprintf(&b, "Graded as %s: %q, as that is what the upload has.\n\n", class.Wanted, u.Name)
	}
	if r.Rejected != nil {
		b.WriteString("The file was not run: see the test below for what has to be fixed first. It does not count against a limit on submissions.\n")
		return b.String()
	}
	visible, failed, skipped, later := 0, 0, 0, 0
	for _, t := range tests {
		switch {
		case t.Visibility != Visible:
			later++
			continue
		case t.Status == Failed:
			failed++
		case t.Status == "":
			skipped++
		}
		visible++
	}
	switch {
	case failed+skipped == 0:
		b.WriteString("The visible tests passed")
	case skipped == 0:
		fmt.Fprintf(&b, "%d of the %d visible tests failed", failed, visible)
	default:
		fmt.Fprintf(&b, "%d of the %d visible tests failed, and %d were not run, because something before them has to be fixed", failed, visible, skipped)
	}
	if later > 0 {
		fmt.Fprintf(&b, "; %d hidden tests are shown after the due date", later)
	}
	b.WriteString(".\n")
	for _, a := range r.Advice {
		fmt.Fprintf(&b, "\nAdvice, which costs nothing: %s\n", a.Name)
		if a.Sentence != "" {
			fmt.Fprintf(&b, "The handout: %s\n", a.Sentence)
		}
		fmt.Fprintf(&b, "%s\n", a.Text)
	}
	return short(b.String())
}
