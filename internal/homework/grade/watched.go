package grade

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/homework/course/handout"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/homework/grade/isolation/cputime"
	"llmmemory/internal/homework/grade/isolation/supervise"
	"llmmemory/internal/homework/grade/judging/compare"
)

func (g *grading) steps(traces ...[]trace.Op) supervise.Steps {
	return supervise.Steps{Traces: traces, Own: len(g.shapes) > 0}
}

func (g *grading) underMemcheck(steps supervise.Steps) ([]supervise.Finding, error) {
	program, err := g.kit.Watched(g.program)
	if err != nil {
		return nil, err
	}
	return supervise.Memcheck(program, steps)
}

func calls(ops []trace.Op, condition func(op trace.Op) bool) bool {
	return slices.ContainsFunc(ops, func(op trace.Op) bool { return !op.Given && !op.Kind.Outside() && condition(op) })
}

// tracesWithout returns the traces in which the grader does the work of one function. It does not change a trace
// without calls of the function. From other traces it removes the calls of the function whose engine is NULL. Such a
// trace is omitted if the submission would then make no call in it, or if the grader cannot create the submission's
// states.
func (g *grading) tracesWithout(function string, traces [][]trace.Op) (remaining [][]trace.Op) {
	matches := func(op trace.Op) bool { return op.Kind.Function() == function }
	for _, ops := range traces {
		if !calls(ops, matches) {
			remaining = append(remaining, ops)
			continue
		}
		given := trace.Isolate(ops, slices.DeleteFunc(slices.Clone(six), func(k trace.Kind) bool { return k.Function() == function })...)
		for i := range given {
			given[i].Given = given[i].Given || ops[i].Given
		}
		given = slices.DeleteFunc(given, func(op trace.Op) bool { return matches(op) && !op.Given }) // calls with a NULL engine remain
		if len(g.shapes) == 0 && calls(given, func(trace.Op) bool { return true }) {
			remaining = append(remaining, given)
		}
	}
	return remaining
}

// memcheck plays the directed traces that show no difference under Memcheck.
func (g *grading) memcheck() error {
	if err := g.replayFindings(Memcheck, g.underMemcheck); err != nil {
		return err
	}
	if len(g.short) == 0 {
		g.skip(Memcheck, "no directed trace is right to its end")
		return nil
	}
	var left [][]trace.Op
	for _, t := range g.short {
		left = append(left, t.ops)
	}
	reported := map[supervise.Finding]bool{}
	for len(left) > 0 {
		found, err := g.underMemcheck(g.steps(left...))
		if err != nil && !errors.Is(err, supervise.ErrUnfinished) {
			return err
		}
		for _, f := range found {
			if !reported[f] {
				reported[f] = true
				g.complaint(f)
			}
		}
		var stuck *supervise.Stuck
		if !errors.As(err, &stuck) {
			if err == nil || len(reported) > 0 {
				return nil
			}
			break
		}
		// From here on the tester does its work.
		g.stuck = append(g.stuck, stuck.Function)
		g.unfinished(Memcheck, trace.TaskOf(stuck.Function), err)
		left = g.tracesWithout(stuck.Function, left)
		g.note("Memcheck: %s does not come back: it was not called again there", stuck.Function)
	}
	for task := 1; task <= Tasks; task++ { // find out which task it was
		clean := slices.DeleteFunc(slices.Clone(left), func(ops []trace.Op) bool {
			return !calls(ops, func(op trace.Op) bool { return op.Task() == task })
		})
		if len(clean) == 0 {
			continue
		}
		found, err := g.underMemcheck(g.steps(clean...))
		for _, f := range found {
			g.complaint(f)
		}
		if errors.Is(err, supervise.ErrUnfinished) {
			if len(found) == 0 {
				g.unfinished(Memcheck, task, err)
			}
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// replayFindings takes the findings in which a call crashes or misuses memory. It replays their short traces under
// Memcheck or with the sanitizers. If the tool complains, the task fails the stage. The first complaint that names a
// line becomes a line of the finding. Leaks after a crash do not count. If the finding is a memory error and the tool
// has no complaint, the stage counts as not run for the task.
//
// On a slow machine the replay may take too long. The stage then counts as not run, unless the task has failed it. A
// bad access costs the memory points even without the replay, because the tool would have complained about it on a
// faster machine. So no score depends on time.
func (g *grading) replayFindings(stage StageName, play func(supervise.Steps) ([]supervise.Finding, error)) error {
	for i := range g.report.Findings {
		f := &g.report.Findings[i]
		dies := f.Channel == compare.Death && !f.Hangs
		if !dies && !f.MemoryError() || len(f.Steps()) == 0 {
			continue
		}
		found, err := play(g.steps(f.Steps()))
		slow := errors.Is(err, cputime.ErrSlow) || errors.Is(err, cputime.ErrStarved) || errors.Is(err, cputime.ErrTime)
		switch {
		case slow:
			g.lost[PartMemory][f.Task] = g.lost[PartMemory][f.Task] || f.BadAccess()
			g.report.Stages.drop(stage, f.Task)
			g.note("%s: not run for task %d: %v", stage, f.Task, err)
			continue
		case err != nil && !errors.Is(err, supervise.ErrUnfinished):
			return err
		}
		for _, m := range found {
			if m.Leak() && dies { // nothing could be freed any more
				continue
			}
			task := f.Task
			if dies {
				task = cmp.Or(trace.TaskOf(m.Function), f.Task)
			}
			g.lost[PartMemory][task] = true
			g.report.Stages.fail(stage, task)
			if m.Line != 0 && !slices.ContainsFunc(f.Lines, func(line string) bool { return strings.HasPrefix(line, "llm_memory.c:") }) {
				f.Lines = append(f.Lines, m.String())
			}
		}
		if f.MemoryError() && g.report.Stages.open(stage, f.Task) && g.report.Stages.find(stage).Tasks[f.Task-1] != Failed {
			g.report.Stages.drop(stage, f.Task)
			g.note("%s: not run for task %d: what is found above is an error with memory", stage, f.Task)
		}
	}
	return nil
}

func (g *grading) unfinished(stage StageName, task int, err error) {
	g.found(PartMemory, Finding{Name: fmt.Sprintf("task%d_%s", task, strings.ToLower(string(stage))), Task: task, Stage: stage,
		Difference: &compare.Difference{Step: -1, Channel: compare.Death, Field: string(stage),
			Expected: "to play every trace to its end", Actual: err.Error()}})
}

func (g *grading) complaint(m supervise.Finding) {
	sentence := "" // the handout only says that Valgrind is used
	if m.Leak() {
		sentence = handout.NoLeaks
	}
	g.complains(Memcheck, m, sentence, func(f *Finding, task int) bool {
		return m.Leak() && f.Channel == compare.Heap || f.Task == task && (f.Stage == Memcheck || f.Channel == compare.Death)
	})
}

// complains adds a complaint of a tool to the report. If a finding explains the complaint, it becomes a line of this
// finding; otherwise it becomes a finding of its own.
func (g *grading) complains(stage StageName, m supervise.Finding, sentence string, explains func(f *Finding, task int) bool, remarks ...string) {
	task := trace.TaskOf(m.Function)
	if task == 0 { // outside the six functions: a leak at the end
		task = Tasks
	}
	g.lost[PartMemory][task] = true
	if g.addLines(func(f *Finding) bool { return explains(f, task) }, append([]string{m.String()}, remarks...)...) {
		g.report.Stages.fail(stage, task)
		return
	}
	field := fmt.Sprintf("what Memcheck says of %s", m.Function)
	if stage == Sanitizers {
		field = fmt.Sprintf("what the sanitizers say of %s", m.Function)
	}
	g.found(PartMemory, Finding{Name: fmt.Sprintf("task%d_%s", task, strings.ToLower(string(stage))), Task: task, Stage: stage, Sentence: sentence, Lines: remarks,
		Difference: &compare.Difference{Step: -1, Channel: compare.Heap, Field: field, Expected: "nothing", Actual: m.String()}})
}

// sanitizers runs a program built with the sanitizers. First it replays the findings. Then it plays the directed traces
// in which the grader found no difference. The first complaint ends the program.
func (g *grading) sanitizers() error {
	for _, function := range g.stuck { // it would use its whole time again
		for kind := range g.hangs {
			if kind.Function() == function {
				g.skip(Sanitizers, function+" does not come back under Memcheck either")
				return nil
			}
		}
	}
	program, err := g.kit.Sanitized(g.program)
	if errors.Is(err, build.ErrSecond) {
		g.skip(Sanitizers, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	if err := g.replayFindings(Sanitizers, func(steps supervise.Steps) ([]supervise.Finding, error) {
		f, _, err := supervise.Sanitizers(program, steps)
		if f == nil {
			return nil, err
		}
		return []supervise.Finding{*f}, err
	}); err != nil {
		return err
	}
	if len(g.clean) == 0 {
		g.skip(Sanitizers, "no directed trace is right to its end")
		return nil
	}
	f, ops, err := supervise.Sanitizers(program, g.steps(g.clean...))
	if errors.Is(err, supervise.ErrUnfinished) {
		g.skip(Sanitizers, err.Error())
		return nil
	}
	if f == nil || err != nil {
		return err
	}
	var remarks []string
	if strings.Contains(f.What, "use-after-free") {
		remarks = remarkOn(ops, func(trace.Op) bool { return true })
	}
	sentence := "" // the handout only says that Valgrind is used
	if strings.Contains(f.What, "null pointer of type 'LLMEngine'") || strings.Contains(f.What, "null pointer of type 'struct LLMEngine'") {
		sentence = handout.NullEngine
	}
	g.complains(Sanitizers, *f, sentence, func(o *Finding, task int) bool { return o.Task == task && o.Stage == Memcheck }, remarks...)
	return nil
}

// remarkOn returns a remark if the grader itself changed the list of sequences before the last step of a trace. It
// looks for steps that removed, unlinked or renamed a sequence, or removed an engine. Only steps for which condition
// returns true count. The remark lists the last three of them. It tells the student to search the list again instead of
// using a pointer from an earlier call.
func remarkOn(ops []trace.Op, condition func(op trace.Op) bool) []string {
	var steps []string
	for _, op := range ops[:max(0, len(ops)-1)] {
		takes := op.Kind == trace.Unlink || op.Kind == trace.Rename || op.Given && (op.Kind.Single() == trace.Free || op.Kind == trace.Destroy)
		if takes && condition(op) {
			steps = append(steps, op.String())
		}
	}
	if len(steps) == 0 {
		return nil
	}
	const maxSteps = 3
	return []string{fmt.Sprintf("the tester itself changed the list of sequences before this call (%s): "+
		"if a function remembers a sequence or an engine from an earlier call, such as the one that was found last, it has to look at active_seqs before it uses it",
		strings.Join(steps[max(0, len(steps)-maxSteps):], "; "))}
}

// remarkOnInit returns a remark for a call that fails on an engine made by the grader without llm_init. It returns nil
// if llm_init was called or the grader made no engine. worksAfterInit means that the same call succeeds on an engine
// that the submission's llm_init has made. If it is set, the remark says so, too.
func remarkOnInit(ops []trace.Op, worksAfterInit bool) []string {
	given := func(op trace.Op) bool { return op.Kind == trace.Init && op.Given }
	called := func(op trace.Op) bool { return op.Kind == trace.Init && !op.Given }
	if !slices.ContainsFunc(ops, given) || slices.ContainsFunc(ops, called) {
		return nil
	}
	line := `the tester itself made the engine ("given init"): llm_init was not called in this process, so global variables that it sets are not set`
	if worksAfterInit {
		line += ". After a call of llm_init this call works: it has to find everything in the engine that it is given, not in global variables"
	}
	return []string{line}
}

// skip marks a stage as not run for all tasks and adds a note. This costs no points.
func (g *grading) skip(stage StageName, reason string) {
	g.report.Stages.skip(stage)
	g.note("%s: not run: %s", stage, reason)
}
