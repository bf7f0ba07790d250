package grade

import (
	"slices"

	"llmmemory/internal/homework/grade/judging/traces"
)

// LeaveOutSweeps makes a grader omit the sweeps, which are the long traces (traces.Case.Sweep). They take a third of
// the time, and many tests do not need them.
func (g *Grader) LeaveOutSweeps() {
	g.cases = slices.DeleteFunc(slices.Clone(g.cases), func(c traces.Case) bool { return c.Sweep })
}

// PlayOnly makes a grader play only the directed traces of some tasks.
func (g *Grader) PlayOnly(tasks ...int) {
	g.cases = slices.DeleteFunc(slices.Clone(g.cases), func(c traces.Case) bool { return !slices.Contains(tasks, c.Task) })
}
