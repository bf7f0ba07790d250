package grade

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/memcheck"
	"llmmemory/internal/grade/sanitize"
)

// memcheck plays the directed traces under Memcheck, but for those that go wrong
// by themselves.
func (g *grading) memcheck() error {
	if err := g.deaths(); err != nil {
		return err
	}
	if len(g.clean) == 0 {
		g.skip(Memcheck, "no directed trace is right to its end")
		return nil
	}
	found, err := memcheck.Run(g.program.Watched(), g.clean)
	if errors.Is(err, memcheck.ErrUnfinished) && len(found) == 0 {
		g.unfinished(err)
		return nil
	}
	if err != nil && !errors.Is(err, memcheck.ErrUnfinished) {
		return err
	}
	for _, f := range found {
		g.complaint(f)
	}
	return nil
}

// deaths looks for the line at which a call dies: the trace is made short, so
// that this takes half a second each.
func (g *grading) deaths() error {
	const most = 2
	looked := 0
	for i := range g.report.Findings {
		f := &g.report.Findings[i]
		if f.Channel != compare.Death || f.Hangs || looked == most || slices.ContainsFunc(f.Ops, func(op trace.Op) bool { return op.Kind.Outside() }) {
			continue
		}
		looked++
		found, err := memcheck.Run(g.program.Watched(), [][]trace.Op{f.Ops})
		if err != nil && !errors.Is(err, memcheck.ErrUnfinished) {
			return err
		}
		for _, m := range found {
			if m.Line != 0 && !strings.HasPrefix(m.Kind, "Leak_") {
				f.Lines = append(f.Lines, m.String())
				break
			}
		}
	}
	return nil
}

// unfinished is one finding, but no task has shown that it is clean.
func (g *grading) unfinished(err error) {
	told := false
	for task := 1; task <= Tasks; task++ {
		if !g.open(Memcheck, task) {
			continue
		}
		if told {
			g.stage(Memcheck).Tasks[task-1] = Failed
			g.lost[PartMemory][task] = true
			continue
		}
		told = true
		g.found(PartMemory, Finding{Name: fmt.Sprintf("task%d_memcheck", task), Task: task, Stage: Memcheck, Sentence: leaks,
			Difference: &compare.Difference{Step: -1, Channel: compare.Death, Field: "Memcheck",
				Expected: "to play every trace to its end", Actual: err.Error()}})
	}
}

// complaint is told as a finding, or as the line of one that is told already.
func (g *grading) complaint(m memcheck.Finding) {
	task := trace.TaskOf(m.Function)
	if task == 0 { // outside the six: what is lost at the end
		task = Tasks
	}
	leak := strings.HasPrefix(m.Kind, "Leak_")
	for i := range g.report.Findings {
		f := &g.report.Findings[i]
		if f.Stage == Heap && leak || f.Task == task && (f.Stage == Memcheck || !g.open(Memcheck, task)) {
			f.Lines = append(f.Lines, m.String())
			return
		}
	}
	if !g.open(Memcheck, task) {
		return
	}
	g.found(PartMemory, Finding{Name: fmt.Sprintf("task%d_memcheck", task), Task: task, Stage: Memcheck, Sentence: leaks,
		Difference: &compare.Difference{Step: -1, Channel: compare.Heap, Field: "what Memcheck says of " + m.Function,
			Expected: "nothing", Actual: m.String()}})
}

// sanitizers plays the same traces on the second build, up to its first complaint.
func (g *grading) sanitizers() error {
	if len(g.clean) == 0 {
		g.skip(Sanitizers, "no directed trace is right to its end")
		return nil
	}
	program, err := g.kit.Sanitized(g.program)
	if errors.Is(err, build.ErrSecond) {
		g.skip(Sanitizers, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	f, err := sanitize.Run(program, g.clean)
	if errors.Is(err, sanitize.ErrUnfinished) {
		g.skip(Sanitizers, err.Error())
		return nil
	}
	if f == nil || err != nil {
		return err
	}
	task := trace.TaskOf(f.Function)
	if task == 0 {
		task = Tasks
	}
	if !g.open(Sanitizers, task) {
		g.line(task, f.String())
		return nil
	}
	g.found(PartMemory, Finding{Name: fmt.Sprintf("task%d_sanitizers", task), Task: task, Stage: Sanitizers, Sentence: leaks,
		Difference: &compare.Difference{Step: -1, Channel: compare.Heap, Field: "what the sanitizers say of " + f.Function,
			Expected: "nothing", Actual: f.String()}})
	return nil
}
