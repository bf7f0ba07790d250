package grade

import (
	"errors"
	"fmt"

	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/homework/grade/judging/rules"
)

func (g *grading) rules() error {
	breaches, err := rules.Check(g.source)
	if errors.Is(err, rules.ErrUnread) {
		g.skip(Rules, err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	for _, b := range breaches {
		name := fmt.Sprintf("task%d_%s", b.Task, b.Rule)
		line := fmt.Sprintf("llm_memory.c:%d, in %s: %s", b.Line, b.Function, b.Message)
		switch {
		case b.Advice:
			g.report.Advice = append(g.report.Advice, Advice{Name: name, Task: b.Task, Sentence: b.Sentence, Line: b.Line, Text: line})
		case g.report.Stages.open(Rules, b.Task):
			g.lost[PartMemory][b.Task] = true
			if g.addLines(func(f *Finding) bool { return f.Task == b.Task && f.Sentence == b.Sentence }, line) { // the same mistake
				g.report.Stages.fail(Rules, b.Task)
				continue
			}
			g.found(PartMemory, Finding{Name: name, Task: b.Task, Stage: Rules, Sentence: b.Sentence, Difference: &compare.Difference{
				Step: -1, Field: "the text of " + b.Function, Expected: "what the handout asks for", Actual: line}})
		default:
			g.addLines(func(f *Finding) bool { return f.Task == b.Task }, line)
		}
	}
	return nil
}

// addLines adds lines to the first finding that satisfies a condition. It returns false if no finding does.
func (g *grading) addLines(condition func(*Finding) bool, lines ...string) bool {
	for i := range g.report.Findings {
		if f := &g.report.Findings[i]; condition(f) {
			f.Lines = append(f.Lines, lines...)
			return true
		}
	}
	return false
}
