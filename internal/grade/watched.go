package grade

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/memcheck"
	"llmmemory/internal/grade/sanitize"
	"llmmemory/internal/grade/trace"
)

// taskOfCall is the task of the handout that asks for a function.
var taskOfCall = map[string]int{"llm_init": 1, "create_sequence": 2, "free_sequence": 2, "fork_sequence": 3, "append_kv": 4, "llm_destroy": 5}

// memcheck plays the directed traces under Memcheck. A submission that dies is not
// watched dying.
func (g *grading) memcheck() error {
	if g.dies() {
		g.skip(Memcheck, "a call does not return")
		return nil
	}
	found, err := memcheck.Run(g.program.Watched(), g.watchable())
	if errors.Is(err, memcheck.ErrUnfinished) {
		g.unfinished(err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range found {
		g.complaint(f)
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
	task := taskOfCall[m.Function]
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

// sanitizers plays the directed traces on the second build, up to its first
// complaint.
func (g *grading) sanitizers() error {
	if g.dies() {
		g.skip(Sanitizers, "a call does not return")
		return nil
	}
	program, err := g.kit.Sanitized(g.program)
	if err != nil {
		return err
	}
	f, err := sanitize.Run(program, g.watchable())
	if errors.Is(err, sanitize.ErrUnfinished) {
		g.skip(Sanitizers, err.Error())
		return nil
	}
	if f == nil || err != nil {
		return err
	}
	task := taskOfCall[f.Function]
	switch {
	case task == 0:
		task = Tasks
		fallthrough
	case g.open(Sanitizers, task):
		g.found(PartMemory, Finding{Name: fmt.Sprintf("task%d_sanitizers", task), Task: task, Stage: Sanitizers, Sentence: leaks,
			Difference: &compare.Difference{Step: -1, Channel: compare.Heap, Field: "what the sanitizers say of " + f.Function,
				Expected: "nothing", Actual: f.String()}})
	default:
		g.line(task, f.String())
	}
	return nil
}

// dies reports whether a call has ended the process or not come back.
func (g *grading) dies() bool {
	return slices.ContainsFunc(g.report.Findings, func(f Finding) bool { return f.Channel == compare.Death })
}

// watchable are the traces that are played where memory is watched.
func (g *grading) watchable() [][]trace.Op {
	var traces [][]trace.Op
	for _, c := range g.cases {
		if !c.Advice {
			traces = append(traces, c.Ops)
		}
	}
	return traces
}
