package grade

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"llmmemory/internal/course/handout"
	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/traces"
)

// ErrOnly is wrapped when no trace has the name that Only asks for.
var ErrOnly = errors.New("no trace has that name")

// directed plays the traces of the handout's sentences. The tester does the work
// of all functions but those that a trace is for, so that each is judged by what
// it does itself.
func (g *grading) directed() error {
	var clues []clue
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
			clues = append(clues, clue{c.Name, Directed, c.Sentence, g.isolate(c.Ops, c.Real...), d})
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
		g.found(PartDirected, Finding{Name: fmt.Sprintf("task%d_missing", task), Task: task, Stage: Directed, Sentence: handout.WhiteBox,
			Difference: &compare.Difference{Step: -1, Field: name, Expected: "defined", Actual: "not defined"}})
	}
	for i, c := range clues {
		if err := g.tell(PartDirected, clearest(clues, i)); err != nil {
			return err
		}
		if err := g.tell(PartDirected, c); err != nil {
			return err
		}
	}
	return nil
}

// test plays one trace and says what it is worth, with the difference that decides.
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
	g.listen(c.Name, ops, r)
	if d != nil {
		t.Status, t.Why = Failed, d.Error()
	} else if len(r.All) == 0 {
		g.clean = append(g.clean, ops)
		if !c.Sweep { // which are slow under Memcheck
			g.short = append(g.short, named{c.Name, ops})
		}
	}
	return t, d, nil
}

// decides is the difference for which a directed trace fails: one in a call that
// it is for. What is written outside an allocation is a matter of the stage Heap.
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

// refusals takes back what functions earn for refusing that only refuse.
func (g *grading) refusals() {
	for i := range g.report.Tests {
		t := &g.report.Tests[i]
		c := g.caseOf(t.Name)
		g.tested = append(g.tested, c)
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

// clearest is the clue that shows the same mistake as clue i in a trace that was written for
// the sentence it breaks; clue i itself if there is none.
func clearest(clues []clue, i int) clue {
	d := clues[i].difference
	for _, c := range clues {
		if c.difference.Same(d) && c.broken() == clues[i].broken() && strings.Contains(c.broken(), c.sentence) {
			return c
		}
	}
	return clues[i]
}

// ownCalls plays the directed traces again, in the submission's own calls from
// beginning to end: functions that are right alone may not go together.
func (g *grading) ownCalls() error {
	for _, c := range g.cases {
		if c.Advice || c.Sweep || g.anyExhausted() {
			continue
		}
		ops := trace.Isolate(c.Ops, trace.Init, trace.Create, trace.Fork, trace.Append, trace.Free, trace.Destroy)
		if slices.Equal(ops, g.isolate(c.Ops, c.Real...)) {
			continue // it was played so
		}
		before := g.differences
		if err := g.mixed(OwnCalls, c.Name, ops); err != nil {
			return err
		}
		if g.differences == before && len(g.program.Missing) == 0 { // else the tester has played a part
			g.watchOwn(c.Name, ops)
		}
	}
	return nil
}

// watchOwn has Memcheck play a trace in the submission's own calls: what one
// function leaves unset, another may use.
func (g *grading) watchOwn(name string, ops []trace.Op) {
	for i := range g.short {
		if g.short[i].name == name {
			g.short[i].ops = ops
		}
	}
}

// mixed plays a trace of many functions. Each is charged with what differs in its
// own calls. Where the trace ends early, what comes after is played with the
// tester in place of the functions that it ended in.
func (g *grading) mixed(stage StageName, name string, ops []trace.Op) error {
	real := []trace.Kind{trace.Init, trace.Create, trace.Fork, trace.Append, trace.Free, trace.Destroy}
	real = slices.DeleteFunc(real, func(k trace.Kind) bool { return g.missing(k) || g.exhausted(k) })
	for len(real) > 0 {
		played := trace.Isolate(ops, real...)
		r, err := g.play(played)
		if err != nil {
			return err
		}
		g.listen(name, played, r)
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
			if err := g.tell(PartHidden, clue{label, stage, handout.WhiteBox, played, d}); err != nil {
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

// listen keeps what a trace has shown of the heap for the stage Heap.
func (g *grading) listen(name string, ops []trace.Op, r compare.Result) {
	for _, d := range r.All {
		if d.Memory() {
			g.heap = append(g.heap, clue{name, Heap, handout.Valgrind, ops, d})
		}
	}
}

// advise plays a trace in which allocations fail, counted as the handout makes them:
// of a submission that makes fewer, it says nothing. The handout does not say what a call
// does when malloc fails, so the advice quotes no sentence.
func (g *grading) advise(c traces.Case) error {
	if slices.ContainsFunc(c.Real, g.missing) || g.exhausted(c.Real...) || len(g.shapes) > 0 {
		return nil
	}
	r, err := g.play(g.isolate(c.Ops, c.Real...))
	if d := r.First(); d != nil && d.Op.Fail > 0 { // else it is no matter of failing allocations
		g.report.Advice = append(g.report.Advice, Advice{Name: c.Name, Task: c.Task, Text: d.Error()})
	}
	return err
}

// random plays traces that nobody wrote down, those of Outside with writes from
// outside.
func (g *grading) random(stage StageName) error {
	for i := 0; i < g.Traces && !g.anyExhausted(); i++ {
		ops := traces.Random(g.report.Seed+uint64(i), randomSteps, stage == Outside)
		if err := g.mixed(stage, "random_"+string(stage), ops); err != nil {
			return err
		}
	}
	return nil
}

// heaps tells what the traces have shown of the heap.
func (g *grading) heaps() error {
	for _, c := range g.heap {
		task := c.difference.Op.Task()
		if !strings.HasPrefix(c.name, "task") {
			c.name = fmt.Sprintf("task%d_random_heap", task)
		}
		if !g.report.Stages.open(Heap, task) && !g.AllStages {
			g.lost[PartMemory][task] = true
			continue
		}
		g.lost[PartMemory][task] = true
		g.report.Stages.fail(Heap, task)
		if err := g.tell(PartMemory, c); err != nil {
			return err
		}
	}
	return nil
}

// seedOf is of the submission's own text, so that the same file always meets the
// same traces.
func seedOf(source []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(source)
	return h.Sum64()
}
