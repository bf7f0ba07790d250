package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/grade"
)

// A mistake is one that several students have made: the same sentence of the handout
// is broken, and the same shortest list of calls shows it.
type mistake struct {
	Title    string
	Task     int
	Sentence string
	Steps    []string
	Students []mention
}

// Count is how many students have made it.
func (m mistake) Count() int { return len(m.Students) }

// Named are those that are named.
func (m mistake) Named() []mention { return m.Students[:min(mostNamed, len(m.Students))] }

// Unnamed is how many are not.
func (m mistake) Unnamed() int { return len(m.Students) - len(m.Named()) }

// sameMistakes are those of two students or more, the commonest first.
func sameMistakes(entries []Entry) []mistake {
	at := map[string]int{}
	var all []mistake
	for _, e := range entries {
		if e.Report == nil {
			continue
		}
		seen := map[string]bool{}
		for i, f := range e.Report.Findings {
			steps, key := stepsOf(&f)
			if seen[key] {
				continue
			}
			seen[key] = true
			n, known := at[key]
			if !known {
				n = len(all)
				at[key] = n
				all = append(all, mistake{Title: f.Headline(), Task: f.Task, Sentence: f.Sentence, Steps: steps})
			}
			all[n].Students = append(all[n].Students, mention{shown(e.Name), link(e.File, fmt.Sprintf("finding-%d", i+1))})
		}
	}
	all = slices.DeleteFunc(all, func(m mistake) bool { return len(m.Students) < 2 })
	slices.SortStableFunc(all, func(a, b mistake) int { return cmp.Compare(len(b.Students), len(a.Students)) })
	return all
}

// stepsOf are the calls that show a finding, and what it has in common with that of
// another student who made the same mistake.
func stepsOf(f *grade.Finding) (steps []string, key string) {
	if f.Difference == nil || f.Step < 0 || f.Step >= len(f.Ops) {
		return nil, strings.Join([]string{f.Sentence, f.Name}, "\n")
	}
	for _, op := range f.Ops[:f.Step+1] {
		steps = append(steps, op.String())
	}
	return steps, f.Sentence + "\n" + strings.Join(steps, "\n")
}

// mostRates is how many tests are listed before the rest is folded.
const mostRates = 12

// A passRate is how many of those whose file was run have passed a test.
type passRate struct {
	Name     string
	Task     int
	Sentence string
	Passed   int
	Run      int
	Percent  float64
}

// passRates are those of all tests, the lowest first.
func passRates(entries []Entry) []passRate {
	at := map[string]int{}
	var all []passRate
	for _, e := range entries {
		if e.Report == nil {
			continue
		}
		for _, t := range e.Report.Tests {
			n, known := at[t.Name]
			if !known {
				n = len(all)
				at[t.Name] = n
				all = append(all, passRate{Name: t.Name, Task: t.Task, Sentence: t.Sentence})
			}
			all[n].Run++
			if t.Status == grade.Passed {
				all[n].Passed++
			}
		}
	}
	for i := range all {
		all[i].Percent = percent(float64(all[i].Passed), float64(all[i].Run))
	}
	slices.SortFunc(all, func(a, b passRate) int {
		return cmp.Or(cmp.Compare(a.Percent, b.Percent), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Name, b.Name))
	})
	return all
}
