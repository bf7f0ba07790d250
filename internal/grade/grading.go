package grade

import (
	"fmt"
	"slices"
	"time"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/shrink"
)

// A grading has an end: so many calls that do not come back are waited for, and
// all traces together may take so long, which is fifty times what they take.
const (
	tired = 3
	whole = 20 * time.Second
)

// A grading is one submission on its way through the stages.
type grading struct {
	*Grader
	report  *Report
	program *build.Program
	source  []byte
	lost    map[Part]*[Tasks + 1]bool // by task: something of this part is wrong
	heap    [Tasks + 1][]clue         // by task: for the stage Heap
	clean   [][]trace.Op              // directed traces in which nothing differs
	hangs   int
	spent   time.Duration // in traces
}

// weary reports whether enough has been waited for.
func (g *grading) weary() bool { return g.hangs >= tired || g.spent > whole }

// run takes the submission through every stage that runs it.
func (g *grading) run() error {
	g.lost = map[Part]*[Tasks + 1]bool{PartHidden: {}, PartMemory: {}}
	stages := []struct {
		name string
		play func() error
	}{
		{Directed, g.directed},
		{Random, func() error { return g.random(Random) }},
		{Outside, func() error { return g.random(Outside) }},
		{Heap, g.heaps},
		{Memcheck, g.memcheck},
		{Sanitizers, g.sanitizers},
		{Rules, g.rules},
	}
	for _, s := range stages {
		begin := time.Now()
		g.enter(s.name)
		if err := s.play(); err != nil {
			return err
		}
		stage := g.stage(s.name)
		stage.Time = time.Since(begin)
		if g.Only != "" && s.name == Directed { // names are of directed traces
			break
		}
	}
	for task := range Tasks {
		if g.Only == "" {
			g.others(task + 1)
		}
	}
	if g.weary() {
		g.note("no more was run, because calls do not come back or take far too long")
	}
	g.Points.award(g.report)
	g.report.Advice = slices.DeleteFunc(g.report.Advice, func(a Advice) bool { // which a mistake explains
		return slices.ContainsFunc(g.report.Findings, func(f Finding) bool { return f.Task == a.Task })
	})
	slices.SortStableFunc(g.report.Findings, func(a, b Finding) int { return a.Task - b.Task })
	return nil
}

func (g *grading) note(format string, values ...any) {
	g.report.Notes = append(g.report.Notes, fmt.Sprintf(format, values...))
}

// enter begins a stage. A task that has failed before is not looked at again,
// unless all stages are to be run: one mistake is one message. What watches the
// memory depends on the directed traces, which it plays, not on the random ones.
func (g *grading) enter(name string) {
	s := Stage{Name: name}
	for i := range s.Tasks {
		s.Tasks[i] = Passed
		for _, before := range g.report.Stages {
			random := before.Name == Random || before.Name == Outside
			if before.Tasks[i] != Passed && !g.AllStages && (!random || name == Outside) {
				s.Tasks[i] = NotRun
			}
		}
	}
	g.report.Stages = append(g.report.Stages, s)
}

func (g *grading) stage(name string) *Stage {
	i := slices.IndexFunc(g.report.Stages, func(s Stage) bool { return s.Name == name })
	return &g.report.Stages[i]
}

// skip says that the stage could not be run for any task, which costs nothing.
func (g *grading) skip(stage, why string) {
	for i, status := range g.stage(stage).Tasks {
		if status == Passed {
			g.stage(stage).Tasks[i] = NotRun
		}
	}
	g.note("%s: not run: %s", stage, why)
}

// open reports whether a finding of a stage in a task is to be told.
func (g *grading) open(stage string, task int) bool {
	i := slices.IndexFunc(g.report.Stages, func(s Stage) bool { return s.Name == stage })
	return i < 0 || g.report.Stages[i].Tasks[task-1] == Passed
}

// found adds a finding. Its task is not looked at by later stages.
func (g *grading) found(part Part, f Finding) {
	if lost := g.lost[part]; lost != nil {
		lost[f.Task] = true
	}
	i := slices.IndexFunc(g.report.Stages, func(s Stage) bool { return s.Name == f.Stage })
	g.report.Stages[i].Tasks[f.Task-1] = Failed
	g.report.Findings = append(g.report.Findings, f)
	g.Told(g.report.File, f)
}

// A clue is a difference in a trace that may be worth telling.
type clue struct {
	name, stage, sentence string
	ops                   []trace.Op
	difference            *compare.Difference
}

// mostTold is how many mistakes of one task a stage tells.
const mostTold = 3

// tell makes a finding of a clue, the trace made short, unless one of the same
// task shows the same mistake.
func (g *grading) tell(part Part, c clue) error {
	d, told := c.difference, 0
	for i := range g.report.Findings {
		if f := &g.report.Findings[i]; f.Task == d.Op.Task() && f.Stage == c.stage {
			if f.Difference.Same(d) {
				if !slices.Contains(f.Same, c.name) && f.Name != c.name {
					f.Same = append(f.Same, c.name)
				}
				return nil
			}
			told++
		}
	}
	if told >= mostTold {
		g.note("%s shows yet another mistake: mend those of task %d first", c.name, d.Op.Task())
		return nil
	}
	f := Finding{Name: c.name, Task: d.Op.Task(), Stage: c.stage, Sentence: c.sentence, Ops: c.ops[:d.Step+1], Difference: d}
	if !d.Hangs { // not to be waited for again and again
		play := func(ops []trace.Op) (*compare.Difference, error) {
			if g.weary() {
				return nil, nil
			}
			r, err := g.play(ops)
			if d.Channel == compare.Heap {
				return r.Heap, err
			}
			return r.State, err
		}
		var err error
		if f.Ops, f.Difference, err = shrink.Shrink(c.ops, d, play, g.Tries); err != nil {
			return err
		}
		if f.Scene, err = compare.Look(g.program.Native(), f.Ops, f.Difference); err != nil {
			return err
		}
	}
	g.found(part, f)
	return nil
}

func (g *grading) play(ops []trace.Op) (compare.Result, error) {
	begin := time.Now()
	r, err := compare.Play(g.program.Native(), ops)
	took := time.Since(begin)
	g.spent += took
	if r.State != nil && r.State.Hangs {
		g.hangs++
		if took > 5*time.Second { // it was waited for once more, in vain
			g.hangs = tired
		}
	}
	return r, err
}

// unseen reports whether no directed trace of a task has passed: what the others
// do not reach shows nothing of it.
func (g *grading) unseen(task int) bool {
	return !slices.ContainsFunc(g.report.Tests, func(t Test) bool { return t.Part == PartDirected && t.Task == task && t.Status == Passed })
}

// others adds the tests of a task that are no directed traces.
func (g *grading) others(task int) {
	for _, t := range []Test{
		{Task: task, Name: fmt.Sprintf("task%d_hidden_traces", task), Part: PartHidden,
			Sentence: "Your code will be evaluated using White-Box testing."},
		{Task: task, Name: fmt.Sprintf("task%d_memory", task), Part: PartMemory, Sentence: leaks},
	} {
		// What was found in later stages all the same (AllStages) gives no other score.
		switch {
		case g.lost[t.Part][task]:
			t.Status = Failed
		case g.stage(Directed).Tasks[task-1] == Failed || g.unseen(task):
			t.Status, t.Why = NotRun, fmt.Sprintf("not run: mend what the directed traces of task %d show first", task)
		default:
			t.Status = Passed
		}
		g.report.Tests = append(g.report.Tests, t)
	}
}
