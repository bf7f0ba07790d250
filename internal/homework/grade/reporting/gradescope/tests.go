package gradescope

import (
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/judging/compare"
)

// A sheet converts a report to the tests of the results.
type sheet struct {
	*grade.Report
	numbers map[string]string // number of each test, by its name: task and place
}

func tests(r *grade.Report) []Test {
	if r.Rejected != nil {
		return []Test{onlyTest("compile", r.Rejected.Text, r.MaxScore)}
	}
	s := sheet{r, map[string]string{}}
	sorted := slices.Clone(r.Tests)
	slices.SortStableFunc(sorted, func(a, b grade.Test) int { return a.Task - b.Task })
	place := map[int]int{}
	for _, t := range sorted {
		place[t.Task]++
		s.numbers[t.Name] = fmt.Sprintf("%d.%d", t.Task, place[t.Task])
	}
	all := make([]Test, 0, len(sorted))
	for _, t := range sorted {
		all = append(all, s.test(t))
	}
	return all
}

// onlyTest returns the only test shown for a submission that was not run. The submission gets no points in it.
func onlyTest(name, output string, points float64) Test {
	return Test{Score: new(float64), MaxScore: points, Status: Failed, Name: name, Output: short(output), OutputFormat: Text, Visibility: Visible}
}

func (s *sheet) test(t grade.Test) Test {
	out := Test{
		MaxScore: t.MaxScore, Name: t.Name, Number: s.numbers[t.Name],
		OutputFormat: Text, Visibility: Visible, Output: s.output(t),
	}
	if t.Part == grade.PartHidden {
		out.Visibility = AfterDueDate
	}
	switch {
	case t.Status == grade.Failed:
		out.Status, out.Score = Failed, &t.Score
	case t.Status == grade.Passed || s.secret(t):
		out.Status, out.Score = Passed, &t.Score
	case t.Score > 0: // not run, but the directed traces earned points
		out.Score = &t.Score
	}
	return out
}

// secret reports whether a memory test was not run because of a mistake that only a hidden test shows. This is so if
// all visible tests of the task passed and no visible finding of the directed traces explains why the memory test was
// not run. Such a memory test is shown as passed. Any other status would reveal that there is a hidden mistake.
func (s *sheet) secret(t grade.Test) bool {
	if t.Part != grade.PartMemory || t.Status != grade.NotRun {
		return false
	}
	for _, o := range s.Tests {
		if o.Task == t.Task && o.Part == grade.PartDirected && o.Status != grade.Passed {
			return false
		}
	}
	return !slices.ContainsFunc(s.Findings, func(f grade.Finding) bool {
		return !hidden(f) && f.Stage == grade.Directed && (f.Task == t.Task || f.Difference != nil && f.Channel == compare.Death)
	})
}

func hidden(f grade.Finding) bool {
	return f.Stage == grade.OwnCalls || f.Stage == grade.Random || f.Stage == grade.Outside || hiddenTrace(f.Name)
}

// hiddenTrace reports whether the trace with this name is hidden. The stage of a finding does not tell this, because
// several stages play hidden traces.
func hiddenTrace(name string) bool { return strings.Contains(name, "_random_") }

func (s *sheet) output(t grade.Test) string {
	var b strings.Builder
	if t.Sentence != "" {
		fmt.Fprintf(&b, "The handout: %s\n", t.Sentence)
	}
	switch {
	case t.Status == grade.Passed && t.Why != "":
		fmt.Fprintf(&b, "\nPassed as far as it got: %s.\n", t.Why)
	case t.Status == grade.NotRun && !s.secret(t):
		fmt.Fprintf(&b, "\nNeither passed nor failed: %s.\n", t.Why)
		if t.Part != grade.PartDirected {
			b.WriteString("It gives no points.\n")
		}
	}
	before := b.Len()
	for i := range s.Findings {
		s.addFinding(&b, t, &s.Findings[i])
	}
	if t.Status == grade.Failed && b.Len() == before && t.Why != "" {
		fmt.Fprintf(&b, "\n%s\n", t.Why)
	}
	if t.Status == grade.Passed && t.Score < t.MaxScore {
		b.WriteString("\nPassed. It gives as large a part of its points as the directed tests of the task give of theirs.\n")
	}
	return short(b.String())
}

func (s *sheet) addFinding(b *strings.Builder, t grade.Test, f *grade.Finding) {
	sameTask := f.Task == t.Task
	switch t.Part {
	case grade.PartDirected:
		switch {
		case hidden(*f):
		case f.Name == t.Name:
			s.finding(b, f, t.Sentence)
		case slices.Contains(f.Same, t.Name):
			fmt.Fprintf(b, "\n%s\nThe same mistake as in %s %s.\n", t.Why, s.numbers[f.Name], f.Name)
		}
	case grade.PartHidden:
		if sameTask && hidden(*f) {
			s.finding(b, f, t.Sentence)
		}
	case grade.PartMemory:
		if !sameTask || f.Stage.Calls() && (f.Difference == nil || !f.MemoryError()) {
			return
		}
		if f.Stage == grade.Directed {
			fmt.Fprintf(b, "\n%s\nThe same mistake as in %s %s.\n", f.Headline(), s.numbers[f.Name], f.Name)
			return
		}
		if hidden(*f) {
			// The steps of a hidden trace must not be shown. Memcheck does not play hidden traces, so its
			// complaints may be shown.
			b.WriteString("\n")
			if f.Sentence != "" {
				fmt.Fprintf(b, "%s\n", f.Sentence)
			}
			b.WriteString("A hidden test shows what is wrong with the heap")
			if f.Difference != nil {
				fmt.Fprintf(b, " in %s", f.Op.Kind.Function())
			}
			b.WriteString("; its steps are shown after the due date.\n")
			lines(b, f)
			return
		}
		s.finding(b, f, t.Sentence)
	}
}
