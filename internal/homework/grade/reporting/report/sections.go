package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/reporting/class"
)

// A group is a list of students. The function mistakes returns one group for each mistake that two or more students
// made. Two mistakes are the same if they break the same sentence and have the same short trace. Two mistakes without a
// trace are the same if they break the same sentence in the same test.
//
// The function broken returns one group for each sentence of the handout that a student broke.
type group struct {
	Title    string
	Task     int
	Sentence string
	Steps    []string
	Students []mention
}

// A mention is a student in a group. URL leads to the finding on the student's page.
type mention struct{ Name, URL string }

const maxNamed = 40 // keeps the page of a large class small

// Count returns the number of students in the group. Named returns the first students, whose names the page shows.
// Unnamed returns the number of the other students.
func (g group) Count() int       { return len(g.Students) }
func (g group) Named() []mention { return g.Students[:min(maxNamed, len(g.Students))] }
func (g group) Unnamed() int     { return len(g.Students) - len(g.Named()) }

// groups puts the students into groups by the keys of their findings, and returns the largest group first. It ignores
// a finding whose key is empty.
func groups(entries []Entry, keyOf func(*grade.Finding) (key string, g group)) []group {
	index := map[string]int{}
	var all []group
	for _, e := range entries {
		if e.Report == nil {
			continue
		}
		seen := map[string]bool{"": true}
		for i := range e.Report.Findings {
			key, g := keyOf(&e.Report.Findings[i])
			if seen[key] {
				continue
			}
			seen[key] = true
			n, known := index[key]
			if !known {
				n = len(all)
				index[key] = n
				all = append(all, g)
			}
			all[n].Students = append(all[n].Students, mention{shown(e.Name), link(e.File, fmt.Sprintf("finding-%d", i+1))})
		}
	}
	slices.SortStableFunc(all, func(a, b group) int { return cmp.Compare(b.Count(), a.Count()) })
	return all
}

// mistakes returns a group for each mistake that two or more students made, the largest first.
func mistakes(entries []Entry) []group {
	all := groups(entries, func(f *grade.Finding) (string, group) {
		g := group{Title: f.Headline(), Task: f.Task, Sentence: f.Sentence}
		last := f.Name
		if steps := f.Steps(); steps != nil {
			for _, op := range steps {
				g.Steps = append(g.Steps, op.String())
			}
			last = strings.Join(g.Steps, "\n")
		}
		return f.Sentence + "\n" + last, g
	})
	return slices.DeleteFunc(all, func(g group) bool { return g.Count() < 2 })
}

// broken returns a group for each sentence of the handout that a student broke, the largest first.
func broken(entries []Entry) []group {
	all := groups(entries, func(f *grade.Finding) (string, group) { return f.Sentence, group{Sentence: f.Sentence} })
	all = slices.DeleteFunc(all, func(g group) bool { return g.Sentence == "" })
	slices.SortFunc(all, func(a, b group) int { return cmp.Or(b.Count()-a.Count(), cmp.Compare(a.Sentence, b.Sentence)) })
	return all
}

const maxRates = 12 // tests that are listed before the rest is folded

// A passRate says how many submissions were graded by a test, and how many of them passed it.
type passRate struct {
	Name     string
	Task     int
	Sentence string
	Passed   int
	Run      int
	Percent  float64
}

func passRates(entries []Entry) []passRate {
	rates := map[string]passRate{}
	for _, e := range entries {
		if e.Report == nil {
			continue
		}
		for _, t := range e.Report.Tests {
			rate := rates[t.Name]
			rate.Name, rate.Task, rate.Sentence = t.Name, t.Task, t.Sentence
			rate.Run++
			if t.Status == grade.Passed {
				rate.Passed++
			}
			rates[t.Name] = rate
		}
	}
	all := slices.Collect(maps.Values(rates))
	for i := range all {
		all[i].Percent = percent(float64(all[i].Passed), float64(all[i].Run))
	}
	slices.SortFunc(all, func(a, b passRate) int {
		return cmp.Or(cmp.Compare(a.Percent, b.Percent), cmp.Compare(a.Task, b.Task), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// A change is a student whose result differs from the result of the previous run.
type change struct {
	Name, URL     string
	Before, After float64
	Was, Is       string   // why it was or is not run
	Passes, Fails []string // tests: now, and not before
	Rules         bool     // other rules than before
	Day           string
}

// Sum is the change of the score.
func (c change) Sum() float64 { return c.After - c.Before }

func changes(entries []Entry) []change {
	var all []change
	for _, e := range entries {
		if e.Before == nil || e.Report == nil {
			continue
		}
		was, now := e.Before, class.OutcomeOf(e.Report)
		c := change{Name: shown(e.Name), URL: link(e.File, ""), Before: was.Score, After: now.Score, Was: was.Rejected, Is: now.Rejected,
			Rules: was.Rules != now.Rules, Day: e.Graded.Format("2006-01-02 15:04 UTC")}
		if c.Was == "" && c.Is == "" {
			c.Passes, c.Fails = subtract(was.Failed, now.Failed), subtract(now.Failed, was.Failed)
		}
		if c.Before != c.After || c.Was != c.Is || len(c.Passes)+len(c.Fails) > 0 {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Compare(b.Day, a.Day) })
	return all
}

// subtract returns the names that are not among the others.
func subtract(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(others, n) })
}

// A kind is why a submission was not run.
type kind string

const (
	attack  kind = "refused"
	form    kind = "refused for its form"
	trouble kind = "could not be graded"
	broke   kind = "does not compile"
	noFile  kind = "nothing to grade"
	pending kind = "not graded yet" // not among the flags
)

func kindOf(r *grade.Rejection) kind {
	switch {
	case r.Stage == grade.NoFile:
		return noFile
	case r.Stage == grade.Compile:
		return broke
	case r.Form:
		return form
	default:
		return attack
	}
}

// A flag is a section of the class page for submissions that staff should look at. It lists the submissions of one
// kind, for example those that do not compile.
type flag struct {
	Kind   kind
	Urgent bool // staff have to do something
	Title  string
	What   string
	Rows   []studentRow
}

// flags are in the order in which staff should look.
var flags = []flag{
	{attack, true, "Refused: attacks, or what looks like one",
		"The file has what the gate refuses because it can attack the grader or hide from it. Read it before you decide.", nil},
	{form, true, "Refused: the form of the file",
		"The file includes another file of the student's, has line ends or characters that the gate refuses, or is too large. That is rarely an attack: the student can correct it.", nil},
	{trouble, true, "Could not be graded", "This is the grader's trouble, not the student's. The next run tries again.", nil},
	{broke, false, "Does not compile", "The compiler refuses the file with the flags of the course.", nil},
	{noFile, false, "Nothing to grade", "There is no C file that could be graded.", nil},
}

func flagged(rows []studentRow) []flag {
	var all []flag
	for _, f := range flags {
		f.Rows = slices.DeleteFunc(slices.Clone(rows), func(r studentRow) bool { return r.Kind != f.Kind })
		if len(f.Rows) > 0 {
			all = append(all, f)
		}
	}
	return all
}

// bars is a histogram of scores, in units of its viewBox.
type bars struct {
	Width, Height int
	Bars          []bar
	Words         string // the same as text
}

// A bar is one bar of the distribution of scores. It shows the number of students with scores in a range of ten
// percent, or with full marks.
type bar struct {
	Label               string
	Count               int
	X, Y, Width, Height int
	Middle, LabelY      int
}

const (
	barWidth  = 30
	barGap    = 4
	barHeight = 120 // of the tallest
	barTop    = 22
)

func histogram(percents []float64) bars {
	var counts [11]int
	for _, p := range percents {
		counts[min(10, max(0, int(p/10)))]++
	}
	tallest := max(1, slices.Max(counts[:]))
	h := bars{Width: len(counts)*(barWidth+barGap) + barGap, Height: barTop + barHeight + 24}
	var words []string
	for i, n := range counts {
		label, long := fmt.Sprint(10*i), fmt.Sprintf("%d to below %d percent", 10*i, 10*i+10)
		if i == 10 {
			label, long = "full", "full marks"
		}
		height := (n*barHeight + tallest - 1) / tallest
		x := barGap + i*(barWidth+barGap)
		h.Bars = append(h.Bars, bar{label, n, x, barTop + barHeight - height, barWidth, height, x + barWidth/2, barTop + barHeight + 16})
		if n > 0 {
			words = append(words, fmt.Sprintf("%s: %d", long, n))
		}
	}
	h.Words = strings.Join(words, "; ")
	return h
}

// A stageTime is how long a stage took.
type stageTime struct {
	Name         string
	Runs         int
	Median, Most time.Duration
}

// Seconds has as many digits as are worth reading.
func (stageTime) Seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func stageTimes(entries []Entry) []stageTime {
	const everything = "everything"
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
		times[everything] = append(times[everything], e.Report.Time)
	}
	var all []stageTime
	for _, name := range append(order, everything) {
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
