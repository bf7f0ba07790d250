package grade

import (
	"errors"
	"fmt"

	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/homework/grade/judging/rules"
)

// rules checks the source text against the sentences of the handout that can be checked there.
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
			if f := g.tells(b.Task, b.Sentence); f != nil { // a trace shows the same mistake
				f.Lines = append(f.Lines, line)
				g.report.Stages.fail(Rules, b.Task)
				continue
			}
			g.found(PartMemory, Finding{Name: name, Task: b.Task, Stage: Rules, Sentence: b.Sentence, Difference: &compare.Difference{
				Step: -1, Field: "the text of " + b.Function, Expected: "what the handout asks for", Actual: line}})
		default:
			g.line(b.Task, line)
		}
	}
	return nil
}

// tells returns the finding of a task that quotes a sentence, or nil.
func (g *grading) tells(task int, sentence string) *Finding {
	for i := range g.report.Findings {
		if f := &g.report.Findings[i]; f.Task == task && f.Sentence == sentence {
			return f
		}
	}
	return nil
}

// line adds a line of the source to the first finding of a task.
func (g *grading) line(task int, line string) {
	for i := range g.report.Findings {
		if f := &g.report.Findings[i]; f.Task == task {
			f.Lines = append(f.Lines, line)
			return
		}
	}
}
