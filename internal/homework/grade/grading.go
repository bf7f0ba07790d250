package grade

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"llmmemory/internal/homework/course/handout"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/homework/grade/isolation/runner"
	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/homework/grade/judging/traces"
)

const maxHangs = 3 // number of hanging calls of a function that the grader waits for

// A grading takes one submission through the stages.
type grading struct {
	*Grader
	report      *Report
	program     *build.Program
	source      []byte
	shapes      map[trace.Kind]*compare.Difference // by function: an allocation that the submission does not make separately
	lost        map[Part]*[Tasks + 1]bool          // by part and task: whether something is wrong
	clean       [][]trace.Op                       // directed traces without a difference
	short       []named                            // those of them for Memcheck
	heap        []candidate                        // for the stage Heap
	differences int                                // found in traces of many functions
	hangs       map[trace.Kind]int                 // number of calls that did not come back
	known       []hang                             // traces that ended in such a call
	stuck       []string                           // functions that did not come back under Memcheck
	refused     map[uint32]bool                    // numbers of refused system calls
}

func newGrading(g *Grader, r *Report, program *build.Program, source []byte) *grading {
	return &grading{Grader: g, report: r, program: program, source: source,
		lost:  map[Part]*[Tasks + 1]bool{PartHidden: {}, PartMemory: {}},
		hangs: map[trace.Kind]int{}, refused: map[uint32]bool{}}
}

// exhausted reports whether, for at least one of these functions, maxHangs calls have not returned.
func (g *grading) exhausted(functions ...trace.Kind) bool {
	return slices.ContainsFunc(functions, func(k trace.Kind) bool { return g.hangs[k] >= maxHangs })
}

func (g *grading) run() error {
	// This trace shows how the submission allocates its structures. If the submission puts several structures into
	// one allocation, the grader cannot create the submission's states by writing to memory.
	r, err := g.play([]trace.Op{{Kind: trace.Init, A: 6400}, {Kind: trace.Create, A: 1, B: 300}, {Kind: trace.Fork, A: 1, B: 2}})
	if err != nil {
		return err
	}
	g.shapes = r.Shapes
	type stage struct {
		name StageName
		play func() error
	}
	all := []stage{
		{Directed, g.directed},
		{OwnCalls, g.ownCalls},
		{Random, func() error { return g.random(Random) }},
		{Outside, func() error { return g.random(Outside) }},
		{Heap, g.heaps},
		{Memcheck, g.memcheck},
		{Sanitizers, g.sanitizers},
		{Rules, g.rules},
	}
	if g.Only != "" { // names are of directed traces
		all = all[:1]
	}
	for _, s := range all {
		begin := time.Now()
		g.report.Stages.begin(s.name, g.AllStages)
		if err := s.play(); err != nil {
			return err
		}
		g.report.Stages.end(time.Since(begin))
	}
	for task := 1; task <= Tasks && g.Only == ""; task++ {
		g.others(task)
	}
	g.noteRefused()
	if g.exhausted(six...) {
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

// makers maps system calls to the library functions that make them, because students may know only the functions.
var makers = map[string]string{
	"sysinfo": "which qsort and sysconf make",
	"dup":     "which perror makes; it prints its message all the same",
	"openat":  "which fopen makes, and sysconf",
}

func (g *grading) noteRefused() {
	var names []string
	for call := range g.refused {
		name := runner.CallName(call)
		if maker := makers[name]; maker != "" {
			name += " (" + maker + ")"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) > 0 {
		g.note("system calls that are refused here, at no cost: %s", strings.Join(names, ", "))
	}
}

// isolate returns the trace in which the submission makes only the calls of the functions in real. For the other
// calls the grader writes their result to memory. If the allocations of a function differ from the handout's, the
// submission still makes the calls of this function and of those that free its allocations.
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
	if note := fmt.Sprintf(format, values...); !slices.Contains(g.report.Notes, note) {
		g.report.Notes = append(g.report.Notes, note)
	}
}

// found adds a finding to the report. Most later stages then omit the task of the finding.
func (g *grading) found(part Part, f Finding) {
	if lost := g.lost[part]; lost != nil {
		lost[f.Task] = true
	}
	g.report.Stages.fail(f.Stage, f.Task)
	if m := assertion.FindStringSubmatch(f.Said); m != nil && f.Channel == compare.Death {
		f.Lines = append(f.Lines, m[0])
	}
	g.report.Findings = append(g.report.Findings, f)
}

var assertion = regexp.MustCompile(`(?m)llm_memory\.c:\d+: .*Assertion .* failed\.$`)

type named struct {
	name string
	ops  []trace.Op
}

// A candidate is a difference that may become a finding.
type candidate struct {
	name       string
	stage      StageName
	sentence   string // that the trace tests
	ops        []trace.Op
	difference *compare.Difference
}

func (c candidate) broken() string {
	if c.difference.Channel == compare.Death && !c.difference.Hangs && slices.ContainsFunc(c.ops, trace.Op.Large) {
		return c.sentence // only a large pool has such an address
	}
	return c.difference.Sentence(c.sentence)
}

const maxFindings = 3 // of a task in a stage

// addFinding shortens the trace of a candidate and adds it to the report, unless the task has a finding that shows the
// same mistake.
func (g *grading) addFinding(part Part, c candidate) error {
	d, found := c.difference, 0
	task := d.Op.Task()
	if g.missing(d.Op.Kind) {
		return nil // already reported
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
			found++
		}
	}
	if found >= maxFindings {
		g.note("%s shows a difference, too; it may come from the mistakes of task %d above", c.name, task)
		return nil
	}
	f, err := g.finding(c)
	if err != nil {
		return err
	}
	g.found(part, f)
	return nil
}

// matching returns the first difference in r that shows the same mistake as d, or nil. If firstOnly is set, only the
// first difference of r is considered.
func matching(r compare.Result, d *compare.Difference, firstOnly bool) *compare.Difference {
	for _, o := range r.All {
		if o.Same(d) && (o.Sentence("") == d.Sentence("") || d.Has(compare.NullPointer) && o.Has(compare.NullTable)) {
			return o // where llm_init was called, the pointer has a name
		}
		if firstOnly {
			break
		}
	}
	return nil
}

// finding shortens the trace of a candidate.
func (g *grading) finding(c candidate) (Finding, error) {
	d := c.difference
	f := Finding{Name: c.name, Task: d.Op.Task(), Stage: c.stage, Sentence: c.broken(), Ops: c.ops[:d.Step+1], Difference: d}
	if d.Hangs || d.Channel == compare.Allocations { // would be waited for each time
		return f, nil
	}
	ops, isFirst, worksAfterInit, err := g.start(&f)
	if err != nil {
		return f, err
	}
	d = f.Difference
	f.Sentence = candidate{c.name, c.stage, c.sentence, c.ops, d}.broken()
	play := func(ops []trace.Op) (*compare.Difference, error) {
		if g.exhausted(d.Op.Kind.Single()) {
			return nil, nil
		}
		r, err := g.play(ops)
		return matching(r, d, isFirst), err
	}
	if f.Ops, f.Difference, err = compare.Shrink(ops, f.Difference, play, g.Tries); err != nil {
		return f, err
	}
	if last := f.Op; f.Channel == compare.Returned || f.Channel == compare.Death {
		f.Lines = remarkOn(f.Steps(), func(op trace.Op) bool { // only what was shortened to what matters
			return op.Engine == last.Engine && (op.Kind == trace.Destroy || op.A == last.A || op.A == last.B && last.Kind.Single() == trace.Fork)
		})
	}
	if worksAfterInit || d.Channel == compare.Death {
		f.Lines = append(f.Lines, remarkOnInit(f.Steps(), worksAfterInit)...)
	}
	f.Scene, err = compare.Look(g.program.Native(), f.Ops, f.Difference)
	return f, err
}

// start returns the trace that Shrink should shorten for a finding. To choose it, start plays up to four versions of
// the finding's trace. Each version says which calls the submission makes. The grader does the work of the other calls.
// These are the calls of the submission in the four versions:
//
//   - all calls,
//   - the calls of the failing function and of llm_init,
//   - the calls of the failing function,
//   - the same calls as in the finding's trace.
//
// start takes the first version whose first difference shows the finding's mistake, and returns its steps up to this
// difference. It stores this difference in the finding, and isFirst is true. If there is no such version, start returns
// the finding's trace, and isFirst is false. worksAfterInit reports whether the second version was played and showed no
// difference.
func (g *grading) start(f *Finding) (ops []trace.Op, isFirst, worksAfterInit bool, err error) {
	kind := f.Op.Kind.Single()
	for i, ops := range [][]trace.Op{trace.Isolate(f.Ops, six...), g.isolate(f.Ops, kind, trace.Init), g.isolate(f.Ops, kind), f.Ops} {
		r, err := g.play(ops)
		if err != nil {
			return nil, false, false, err
		}
		if first := matching(r, f.Difference, true); first != nil {
			f.Difference = first
			return ops[:first.Step+1], true, worksAfterInit, nil
		}
		worksAfterInit = worksAfterInit || i == 1 && len(r.All) == 0
	}
	return f.Ops, false, worksAfterInit, nil
}

// A hang is a trace whose last call did not return.
type hang struct {
	ops      []trace.Op
	patience runner.Patience
	result   compare.Result
}

// play plays a trace and counts the calls that do not return. If the beginning of the trace is known to end in such a
// call, play returns the earlier result instead.
func (g *grading) play(ops []trace.Op) (r compare.Result, err error) {
	patience := compare.PatienceWith(ops)
	i := slices.IndexFunc(g.known, func(h hang) bool {
		return h.patience == patience && len(h.ops) <= len(ops) && slices.Equal(h.ops, ops[:len(h.ops)])
	})
	if i >= 0 {
		r = g.known[i].asKnown()
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

func (h hang) asKnown() compare.Result {
	r := h.result
	r.All = slices.Clone(r.All)
	last := *r.All[len(r.All)-1]
	last.Known = true
	r.All[len(r.All)-1] = &last
	return r
}

// missing reports whether the submission does not define the function that steps of kind k call.
func (g *grading) missing(k trace.Kind) bool {
	return !k.Outside() && slices.Contains(g.program.Missing, k.Function())
}

// others adds the tests of a task that are not directed traces: one for the hidden traces and one for memory errors.
// If no directed trace shows that the task works, Memcheck and the sanitizers count as not run for the task.
func (g *grading) others(task int) {
	failed, works := false, false
	for _, t := range g.report.Tests {
		if t.Part == PartDirected && t.Task == task {
			failed = failed || t.Status != Passed
			works = works || t.Status == Passed && !g.caseOf(t.Name).Refuses
		}
	}
	if !works {
		g.report.Stages.drop(Memcheck, task)
		g.report.Stages.drop(Sanitizers, task)
	}
	for _, t := range []Test{
		{Task: task, Name: fmt.Sprintf("task%d_hidden_traces", task), Part: PartHidden, Sentence: handout.WhiteBox},
		{Task: task, Name: fmt.Sprintf("task%d_memory", task), Part: PartMemory, Sentence: handout.NoLeaks},
	} {
		switch {
		case g.lost[t.Part][task]:
			t.Status = Failed
		case !works:
			t.Status, t.Why = NotRun, fmt.Sprintf("no directed trace of task %d shows that it works", task)
		case failed && t.Part == PartHidden:
			t.Status, t.Why = NotRun, fmt.Sprintf("it is for a task %d in which nothing is wrong", task)
		default:
			t.Status = Passed
		}
		g.report.Tests = append(g.report.Tests, t)
	}
}

func (g *grading) caseOf(name string) traces.Case {
	i := slices.IndexFunc(g.cases, func(c traces.Case) bool { return c.Name == name })
	return g.cases[i]
}
