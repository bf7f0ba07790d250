package page

import (
	"cmp"
	"slices"

	"llmmemory/internal/grade/class"
)

// A change is a student whose result is another than in the run before.
type change struct {
	Name, URL     string
	Before, After float64
	Was, Is       string   // why it was or is not run
	Passes, Fails []string // tests: now, and not before
	Rules         bool     // other rules than before
	Day           string
}

// Sum is what the score has gained or lost.
func (c change) Sum() float64 { return c.After - c.Before }

// changes are those of the entries, the latest day first.
func changes(entries []Entry) []change {
	var all []change
	for _, e := range entries {
		if e.Before == nil || e.Report == nil {
			continue
		}
		now := class.OutcomeOf(e.Report)
		c := change{Name: shown(e.Name), URL: link(e.File, ""), Before: e.Before.Score, After: now.Score, Was: e.Before.Rejected, Is: now.Rejected,
			Rules: e.Before.Rules != now.Rules, Day: e.Graded.Format("2006-01-02 15:04 UTC")}
		if c.Was == "" && c.Is == "" {
			c.Passes, c.Fails = without(e.Before.Failed, now.Failed), without(now.Failed, e.Before.Failed)
		}
		if c.Before != c.After || c.Was != c.Is || len(c.Passes)+len(c.Fails) > 0 {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return cmp.Compare(b.Day, a.Day) })
	return all
}

// without are the names that are in the first list and not in the second.
func without(names, others []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return slices.Contains(others, n) })
}
