package grade

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"llmmemory/internal/course/handout"
	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/runner"
	"llmmemory/internal/grade/traces"
)

// mostHangs calls of a function that do not come back are waited for.
const mostHangs = 3

// A grading is one submission on its way through the stages.
type grading struct {
	*Grader
	report      *Report
	program     *build.Program
	source      []byte
	shapes      map[trace.Kind]*compare.Difference // what it does not make allocations of its own
	lost        map[Part]*[Tasks + 1]bool          // by task: something of this part is wrong
	tested      []traces.Case                      // of the report's directed tests
	clean       [][]trace.Op                       // directed traces in which nothing differs
	short       []named                            // those of them that Memcheck plays
	heap        []clue                             // for the stage Heap
	differences int                                // in traces of many functions
	hangs       map[trace.Kind]int                 // calls that did not come back
	known       []hang                             // those that were waited for
	stuck       []string                           // functions that do not come back under Memcheck
	refused     map[uint32]bool                    // system calls
}

func newGrading(g *Grader, r *Report, program *build.Program, source []byte) *grading {
	return &grading{Grader: g, report: r, program: program, source: source,
		lost:  map[Part]*[Tasks + 1]bool{PartHidden: {}, PartMemory: {}},
		hangs: map[trace.Kind]int{}, refused: map[uint32]bool{}}
}

// exhausted reports whether enough has been waited for one of the functions.
func (g *grading) exhausted(functions ...trace.Kind) bool {
	return slices.ContainsFunc(functions, func(k trace.Kind) bool { return g.hangs[k] >= mostHangs })
}

// anyExhausted names a function that is.
func (g *grading) anyExhausted() bool {
	return g.exhausted(slices.Collect(maps.Keys(g.hangs))...)
}

// run takes the submission through every stage that runs it.
func (g *grading) run() error {
	if err := g.probe(); err != nil {
		return err
	}
	for _, s := range []struct {
		name StageName
		play func() error
	}{
		{Directed, g.directed},
		{OwnCalls, g.ownCalls},
		{Random, func() error { return g.random(Random) }},
		{Outside, func() error { return g.random(Outside) }},
		{Heap, g.heaps},
		{Memcheck, g.memcheck},
		{Sanitizers, g.sanitizers},
		{Rules, g.rules},
		{Exhaustive, g.exhaustively},
	} {
		if s.name == Exhaustive && !g.Exhaustive {
			continue
		}
		begin := time.Now()
		g.report.Stages.begin(s.name, g.AllStages)
		if err := s.play(); err != nil {
			return err
		}
		g.report.Stages.end(time.Since(begin))
		if g.Only != "" && s.name == Directed { // names are of directed traces
			break
		}
	}
	for task := range Tasks {
		if g.Only == "" {
			g.others(task + 1)
		}
	}
	g.tellRefused()
	if g.anyExhausted() {
		g.note("not everything was run, because calls do not come back")
	}
	g.Points.award(g.report)
	g.report.gains()
	g.report.Advice = slices.DeleteFunc(g.report.Advice, func(a Advice) bool { // which a mistake explains
		return slices.ContainsFunc(g.report.Findings, func(f Finding) bool { return f.Task == a.Task })
	})
	slices.SortStableFunc(g.report.Findings, func(a, b Finding) int { return a.Task - b.Task })
	return nil
}

// makers explain system calls that a student does not know.
var makers = map[string]string{
	"sysinfo": "which qsort and sysconf make",
	"dup":     "which perror makes; it prints its message all the same",
	"openat":  "which fopen makes, and sysconf",
}

// tellRefused names the system calls that were refused in this run.
func (g *grading) tellRefused() {
	var names []string
	for call := range g.refused {
		name := runner.CallName(call)
		if by := makers[name]; by != "" {
			name += " (" + by + ")"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) > 0 {
		g.note("system calls that are refused here, at no cost: %s", strings.Join(names, ", "))
	}
}

// probe asks how the submission allocates what it makes: the tester builds as it
// does, or lets it build.
func (g *grading) probe() error {
	r, err := g.play([]trace.Op{{Kind: trace.Init, A: 6400}, {Kind: trace.Create, A: 1, B: 300}, {Kind: trace.Fork, A: 1, B: 2}})
	g.shapes = r.Shapes
	return err
}

// isolate gives a trace to the tester but for some functions. What the submission
// does not allocate as the handout has it, it builds itself, because it frees it
// so, too.
func (g *grading) isolate(ops []trace.Op, real ...trace.Kind) []trace.Op {
	for kind := range g.shapes {
		real = append(real, kind, trace.Destroy)
		if kind != trace.Init {
			real = append(real, trace.Free)
		}
	}
	return trace.Isolate(ops, real...)
}

func (g *grading) note(format string, values ...any) {
	g.report.Notes = append(g.report.Notes, fmt.Sprintf(format, values...))
}

// found adds a finding. Its task is not looked at by later stages.
func (g *grading) found(part Part, f Finding) {
	if lost := g.lost[part]; lost != nil {
		lost[f.Task] = true
	}
	g.report.Stages.fail(f.Stage, f.Task)
	if m := assertion.FindStringSubmatch(f.Said); m != nil && f.Channel == compare.Death {
		f.Lines = append(f.Lines, m[0])
	}
	g.report.Findings = append(g.report.Findings, f)
	g.Told(g.report.File, f)
}

// assertion is what a failed assert writes to standard error.
var assertion = regexp.MustCompile(`(?m)llm_memory\.c:\d+: .*Assertion .* failed\.$`)

// A named trace is one with the name of its test.
type named struct {
	name string
	ops  []trace.Op
}

// A clue is a difference in a trace that may be worth telling.
type clue struct {
	name       string
	stage      StageName
	sentence   string // that the trace is for
	ops        []trace.Op
	difference *compare.Difference
}

// broken is the sentence that its difference breaks.
func (c clue) broken() string {
	if c.difference.Channel == compare.Death && !c.difference.Hangs && slices.ContainsFunc(c.ops, trace.Op.Large) {
		return c.sentence // at an address that only a large pool has
	}
	return sentence(c.difference, c.sentence)
}

// mostTold is how many mistakes of one task a stage tells.
const mostTold = 3

// tell makes a finding of a clue, the trace made short, unless one of the same
// task shows the same mistake.
func (g *grading) tell(part Part, c clue) error {
	d, told := c.difference, 0
	task := d.Op.Task()
	if g.missing(d.Op.Kind) {
		return nil // which is told already
	}
	for i := range g.report.Findings {
		f := &g.report.Findings[i]
		if f.Task != task {
			continue
		}
		if f.Difference.Same(d) || f.Channel == compare.Death && d.Channel == compare.Death && f.Op.Kind.Single() == d.Op.Kind.Single() {
			if !slices.Contains(f.Same, c.name) && f.Name != c.name {
				f.Same = append(f.Same, c.name)
			}
			return nil
		}
		if f.Stage == c.stage {
			told++
		}
	}
	if told >= mostTold {
		g.note("%s shows yet another mistake of task %d: fix those above first", c.name, task)
		return nil
	}
	f, err := g.finding(c)
	if err != nil {
		return err
	}
	g.found(part, f)
	return nil
}

// like is the first difference that shows the same mistake as d.
func like(r compare.Result, d *compare.Difference) *compare.Difference {
	for _, o := range r.All {
		if o.Same(d) && sentence(o, "") == sentence(d, "") {
			return o
		}
	}
	return nil
}

// finding makes the trace of a clue short, in the submission's own calls if they
// show the same.
func (g *grading) finding(c clue) (Finding, error) {
	d := c.difference
	f := Finding{Name: c.name, Task: d.Op.Task(), Stage: c.stage, Sentence: c.broken(), Ops: c.ops[:d.Step+1], Difference: d}
	if d.Hangs || d.Channel == compare.Allocations { // not to be waited for again and again; nothing to look at
		return f, nil
	}
	own := trace.Isolate(f.Ops, trace.Init, trace.Create, trace.Fork, trace.Append, trace.Free, trace.Destroy)
	r, err := g.play(own)
	if err != nil {
		return f, err
	}
	ops := f.Ops
	if like := like(r, d); like != nil {
		ops, f.Difference = own[:like.Step+1], like
	}
	play := func(ops []trace.Op) (*compare.Difference, error) {
		if g.exhausted(d.Op.Kind.Single()) {
			return nil, nil
		}
		r, err := g.play(ops)
		return like(r, d), err
	}
	if f.Ops, f.Difference, err = compare.Shrink(ops, f.Difference, play, g.Tries); err != nil {
		return f, err
	}
	f.Scene, err = compare.Look(g.program.Native(), f.Ops, f.Difference)
	return f, err
}

// A hang is what was seen of the first calls of a trace, the last of which did not come back.
type hang struct {
	ops      []trace.Op
	patience runner.Patience
	result   compare.Result
}

// play plays a trace, and counts the calls that do not come back. If the trace begins with the ops of a
// known hang, it is not played: the last of these calls would not come back this time either.
func (g *grading) play(ops []trace.Op) (r compare.Result, err error) {
	patience := compare.PatienceWith(ops)
	i := slices.IndexFunc(g.known, func(h hang) bool {
		return h.patience == patience && len(h.ops) <= len(ops) && slices.Equal(h.ops, ops[:len(h.ops)])
	})
	if i >= 0 {
		r = g.known[i].again()
	} else if r, err = compare.Play(g.program.Native(), ops); err != nil {
		return r, err
	}
	for _, call := range r.Calls {
		g.refused[call] = true
	}
	for _, d := range r.All {
		if d.Hangs {
			g.hangs[d.Op.Kind.Single()]++
			if i < 0 {
				g.known = append(g.known, hang{slices.Clone(ops[:d.Step+1]), patience, r})
			}
		}
	}
	return r, nil
}

// again is the result of the same calls.
func (h hang) again() compare.Result {
	r := h.result
	r.All = slices.Clone(r.All)
	last := *r.All[len(r.All)-1]
	last.Known = true
	r.All[len(r.All)-1] = &last
	return r
}

// missing reports whether the submission does not define what a step calls.
func (g *grading) missing(k trace.Kind) bool {
	return !k.Outside() && slices.Contains(g.program.Missing, k.Function())
}

// worked is how many directed tests of a task that ask for more than a refusal
// there are, and how many passed.
func (g *grading) worked(task int) (passed, all int) {
	for i, t := range g.report.Tests {
		if t.Part != PartDirected || t.Task != task {
			continue
		}
		all++
		if t.Status == Passed && !g.tested[i].Refuses {
			passed++
		}
	}
	return passed, all
}

// others adds the tests of a task that are no directed traces.
func (g *grading) others(task int) {
	worked, _ := g.worked(task)
	failed := slices.ContainsFunc(g.report.Tests, func(t Test) bool {
		return t.Task == task && t.Part == PartDirected && t.Status != Passed
	})
	for _, t := range []Test{
		{Task: task, Name: fmt.Sprintf("task%d_hidden_traces", task), Part: PartHidden, Sentence: handout.WhiteBox},
		{Task: task, Name: fmt.Sprintf("task%d_memory", task), Part: PartMemory, Sentence: handout.NoLeaks},
	} {
		switch {
		case g.lost[t.Part][task]:
			t.Status = Failed
		case worked == 0:
			t.Status, t.Why = NotRun, fmt.Sprintf("no directed trace of task %d shows that it works", task)
		case failed && t.Part == PartHidden:
			t.Status, t.Why = NotRun, fmt.Sprintf("it is for a task %d in which nothing is wrong", task)
		default:
			t.Status = Passed
		}
		g.report.Tests = append(g.report.Tests, t)
	}
}

// caseOf is the trace that a directed test plays.
func (g *grading) caseOf(name string) traces.Case {
	i := slices.IndexFunc(g.cases, func(c traces.Case) bool { return c.Name == name })
	return g.cases[i]
}
