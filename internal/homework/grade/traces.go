package grade

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/homework/grade/judging/traces"
)

// ErrOnly means that no trace has a name that contains Grader.Only.
var ErrOnly = errors.New("no trace has that name")

// directed plays the directed traces. The submission makes only the calls of the functions that a trace tests. The
// grader writes the results of the others to memory, so that each function is judged alone.
func (g *grading) directed() error {
	var candidates []candidate
	for _, c := range g.cases {
		if !strings.Contains(c.Name, g.Only) {
			continue
		}
		if c.Advice {
			if err := g.advise(c); err != nil {
				return err
			}
			continue
		}
		test, d, err := g.test(c)
		if err != nil {
			return err
		}
		g.report.Tests = append(g.report.Tests, test)
		if d != nil {
			candidates = append(candidates, candidate{c.Name, Directed, c.Sentence, g.isolate(c.Ops, c.Real...), d})
		}
	}
	if len(g.report.Tests) == 0 {
		return fmt.Errorf("%w: %q", ErrOnly, g.Only)
	}
	if g.Only != "" {
		g.note("only the traces with %q in their name were played", g.Only)
	}
	g.refusals()
	for _, name := range g.program.Missing {
		task := trace.TaskOf(name)
		g.found(PartDirected, Finding{Name: fmt.Sprintf("task%d_missing", task), Task: task, Stage: Directed,
			Difference: &compare.Difference{Step: -1, Field: name, Expected: "defined", Actual: "not defined"}})
	}
	for i, c := range candidates {
		if err := g.addFinding(PartDirected, clearest(candidates, i)); err != nil {
			return err
		}
		if err := g.addFinding(PartDirected, c); err != nil {
			return err
		}
	}
	return nil
}

func (g *grading) test(c traces.Case) (Test, *compare.Difference, error) {
	t := Test{Task: c.Task, Name: c.Name, Part: PartDirected, Sentence: c.Sentence, Status: Passed}
	switch {
	case slices.ContainsFunc(c.Real, g.missing):
		t.Status, t.Why = NotRun, "it is not defined"
		return t, nil, nil
	case g.exhausted(c.Real...):
		t.Status, t.Why = NotRun, "calls before did not come back"
		return t, nil, nil
	}
	ops := g.isolate(c.Ops, c.Real...)
	r, err := g.play(ops)
	if err != nil {
		return t, nil, err
	}
	d := g.decides(c, r)
	g.keepHeap(c.Name, ops, r)
	if d != nil {
		t.Status, t.Why = Failed, d.Error()
	} else if len(r.All) == 0 {
		g.clean = append(g.clean, ops)
		if !c.Sweep { // sweeps are slow under Memcheck
			g.short = append(g.short, named{c.Name, ops})
		}
	}
	return t, d, nil
}

// decides returns the difference that makes a directed trace fail, or nil. This is the first difference in a call of a
// function that the trace tests (c.Real), or in a call whose engine is NULL. But if the trace tests how memory is
// allocated (c.Shape) and an allocation of such a function has the wrong shape, decides returns the difference for this
// allocation, even if another difference is earlier. A write outside an allocation does not count, because the stage
// Heap reports it.
func (g *grading) decides(c traces.Case, r compare.Result) *compare.Difference {
	if c.Shape {
		for _, kind := range c.Real {
			if d := r.Shapes[kind]; d != nil {
				d.Op = c.Ops[slices.IndexFunc(c.Ops, func(op trace.Op) bool { return op.Kind == kind })]
				return d
			}
		}
	}
	for _, d := range r.All {
		if d.Overrun() {
			continue
		}
		if slices.Contains(c.Real, d.Op.Kind.Single()) || d.Op.Engine == trace.None {
			return d
		}
	}
	return nil
}

// refusals changes tests from passed to not run for a function that refuses every call. Such a function passes the
// tests of refusals, but no test of success.
func (g *grading) refusals() {
	for i := range g.report.Tests {
		t := &g.report.Tests[i]
		c := g.caseOf(t.Name)
		if t.Status != Passed || !c.Refuses {
			continue
		}
		if !slices.ContainsFunc(g.report.Tests, func(o Test) bool {
			other := g.caseOf(o.Name)
			return o.Status == Passed && !other.Refuses && slices.Contains(c.Real, other.Real[0])
		}) {
			t.Status, t.Why = NotRun, "it refuses this as it refuses everything"
		}
	}
}

// clearest returns a candidate that shows the same mistake as candidate i: the one with the greatest clarity.
func clearest(candidates []candidate, i int) candidate {
	best := candidates[i]
	for _, c := range candidates {
		if best.clarity() < c.clarity() && best.sameAs(c) {
			best = c
		}
	}
	return best
}

func (c candidate) sameAs(o candidate) bool {
	if crash := compare.Death; c.difference.Channel == crash && o.difference.Channel == crash {
		return c.difference.Op.Kind.Function() == o.difference.Op.Kind.Function() && c.difference.Hangs == o.difference.Hangs
	}
	return c.difference.Same(o.difference) && c.broken() == o.broken()
}

// clarity returns a number that says how well a candidate explains its mistake. The number is greater if a call crashes
// that should succeed. It is also greater if the sentence that the trace tests is the one that the submission violates,
// unless the trace has a large pool. It is less if the failing call should succeed but the trace is about calls that
// must fail, because the trace's name would mislead the student.
func (c candidate) clarity() (n int) {
	mustFail := c.difference.Refused()
	if c.difference.Channel == compare.Death && !mustFail {
		n += 4
	}
	if c.sentence != "" && strings.Contains(c.broken(), c.sentence) && !slices.ContainsFunc(c.ops, trace.Op.Large) { // a crash there breaks whatever it tests
		n += 2
	}
	if mustFail || !compare.TellsRefusals(c.sentence) {
		n++
	}
	return n
}

var six = []trace.Kind{trace.Init, trace.Create, trace.Fork, trace.Append, trace.Free, trace.Destroy}

// ownCalls plays the directed traces other than sweeps again, with all calls made by the submission, because functions
// that are correct alone may fail together.
func (g *grading) ownCalls() error {
	for _, c := range g.cases {
		if c.Advice || c.Sweep || g.exhausted(six...) {
			continue
		}
		ops := trace.Isolate(c.Ops, six...)
		if slices.Equal(ops, g.isolate(c.Ops, c.Real...)) {
			continue // played before
		}
		before := g.differences
		if err := g.mixed(OwnCalls, c.Name, ops); err != nil {
			return err
		}
		if g.differences > before || len(g.program.Missing) > 0 {
			continue // the tester has taken over some calls
		}
		// Under Memcheck, too: one function may use what another left uninitialised.
		if i := slices.IndexFunc(g.short, func(t named) bool { return t.name == c.Name }); i >= 0 {
			g.short[i].ops = ops
		}
	}
	return nil
}

// mixed plays a trace in which the submission makes the calls of all functions. A difference counts for the function
// in whose call it appears. If a call of a function ends the trace early, mixed plays the trace again with the work
// of this function done by the grader.
func (g *grading) mixed(stage StageName, name string, ops []trace.Op) error {
	real := slices.DeleteFunc(slices.Clone(six), func(k trace.Kind) bool { return g.missing(k) || g.exhausted(k) })
	for len(real) > 0 {
		played := trace.Isolate(ops, real...)
		r, err := g.play(played)
		if err != nil {
			return err
		}
		g.keepHeap(name, played, r)
		g.differences += len(r.All)
		for _, d := range r.All {
			if d.Memory() || !g.report.Stages.open(stage, d.Op.Task()) {
				continue
			}
			g.lost[PartHidden][d.Op.Task()] = true
			g.report.Stages.fail(stage, d.Op.Task())
			label := name
			if stage != OwnCalls {
				label = fmt.Sprintf("task%d_%s", d.Op.Task(), strings.ReplaceAll(string(stage), " ", "_"))
			}
			if err := g.addFinding(PartHidden, candidate{label, stage, "", played, d}); err != nil {
				return err
			}
		}
		last := len(r.All) - 1
		if last < 0 || r.All[last].Step == len(ops)-1 {
			return nil
		}
		fault := r.All[last].Op.Kind.Single()
		before := len(real)
		if real = slices.DeleteFunc(real, func(k trace.Kind) bool { return k == fault }); len(real) == before {
			return nil
		}
	}
	return nil
}

// keepHeap looks for memory errors among the differences of a trace. It stores them for the stage Heap, except leaks.
// Each memory error, including a leak, costs the memory points of its task.
func (g *grading) keepHeap(name string, ops []trace.Op, r compare.Result) {
	for _, d := range r.All {
		if d.MemoryError() {
			g.lost[PartMemory][d.Op.Task()] = true
		}
		if d.Memory() {
			g.heap = append(g.heap, candidate{name, Heap, "", ops, d})
		}
	}
}

// advise plays a trace in which allocations fail. It does nothing if the submission puts several structures into one
// allocation. The handout does not say what must happen when malloc fails, so a mistake becomes advice that costs no
// points and quotes no sentence.
func (g *grading) advise(c traces.Case) error {
	if slices.ContainsFunc(c.Real, g.missing) || g.exhausted(c.Real...) || len(g.shapes) > 0 {
		return nil
	}
	r, err := g.play(g.isolate(c.Ops, c.Real...))
	if d := r.First(); d != nil && d.Op.Fail > 0 { // otherwise it is not about failing allocations
		g.report.Advice = append(g.report.Advice, Advice{Name: c.Name, Task: c.Task, Text: d.Error()})
	}
	return err
}

func (g *grading) random(stage StageName) error {
	for i := 0; i < g.Traces && !g.exhausted(six...); i++ {
		ops := traces.Random(g.report.Seed+uint64(i), randomSteps, stage == Outside)
		if err := g.mixed(stage, "random_"+string(stage), ops); err != nil {
			return err
		}
	}
	return nil
}

func (g *grading) heaps() error {
	for i := range g.heap {
		if c := &g.heap[i]; strings.HasPrefix(c.name, "task") {
			c.sentence = g.caseOf(c.name).Sentence
		} else {
			c.name = fmt.Sprintf("task%d_random_heap", c.difference.Op.Task())
		}
	}
	for i, c := range g.heap {
		task := c.difference.Op.Task()
		g.lost[PartMemory][task] = true
		if !g.report.Stages.open(Heap, task) && !g.AllStages {
			continue
		}
		g.report.Stages.fail(Heap, task)
		for _, c := range []candidate{clearest(g.heap, i), c} {
			if err := g.addFinding(PartMemory, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// seedOf returns a seed for the submission's text. A file always gets the same random traces.
func seedOf(source []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(source)
	return h.Sum64()
}
