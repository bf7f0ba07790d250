package grade

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/directed"
	"llmmemory/internal/grade/random"
)

// ErrOnly is wrapped when no trace has the name that Only asks for.
var ErrOnly = errors.New("no trace is called so")

// directed plays the traces of the handout's sentences. One that goes wrong in a
// call of another task says nothing of its own sentence.
func (g *grading) directed() error {
	var astray [Tasks + 1]*clue // by task: the first such trace
	var clues []clue
	for _, c := range g.cases {
		if !strings.Contains(c.Name, g.Only) {
			continue
		}
		test := Test{Task: c.Task, Name: c.Name, Part: PartDirected, Sentence: c.Sentence}
		if !g.weary() {
			r, err := g.play(c.Ops)
			if err != nil {
				return err
			}
			if c.Advice {
				g.advise(c, r)
				continue
			}
			g.listen(c.Name, c.Ops, r)
			d := g.judge(&test, r)
			if d == nil {
				g.clean = append(g.clean, c.Ops)
			}
			switch {
			case d == nil:
			case test.Status == Failed:
				clues = append(clues, clue{c.Name, Directed, c.Sentence, c.Ops, d})
			case astray[d.Op.Task()] == nil:
				task := d.Op.Task()
				astray[task] = &clue{fmt.Sprintf("task%d_seen_in_%s", task, c.Name), Directed, sentence(d), c.Ops, d}
			}
		} else {
			test.Status, test.Why = NotRun, "calls before did not come back, or took far too long"
		}
		if !c.Advice {
			g.report.Tests = append(g.report.Tests, test)
		}
	}
	if len(g.report.Tests) == 0 {
		return fmt.Errorf("%w: %q", ErrOnly, g.Only)
	}
	if g.Only != "" {
		g.note("only the traces with %q in their name were played", g.Only)
	}
	for _, c := range clues {
		same := 0
		for _, o := range clues {
			if c.difference.Same(o.difference) {
				same++
			}
		}
		if same > 2 && c.difference.Channel != compare.Returned { // it is not what one of these traces was written for
			c.sentence = sentence(c.difference)
		}
		if err := g.tell(PartDirected, c); err != nil {
			return err
		}
	}
	for task, c := range astray {
		if c != nil && g.open(Directed, task) {
			if err := g.tell(PartHidden, *c); err != nil {
				return err
			}
		}
	}
	return nil
}

// judge says what a trace is worth to the task it was written for, and returns
// the difference that decides.
func (g *grading) judge(test *Test, r compare.Result) *compare.Difference {
	test.Status = Passed
	d := r.State
	// Allocating in a call that has to fail breaks a contract; what is lost or
	// overrun is a matter of the stage Heap.
	if h := r.Heap; h != nil && h.Field == compare.Allocates && h.Op.Task() == test.Task && (d == nil || h.Step < d.Step) {
		d = h
	}
	switch {
	case d == nil:
	case d.Op.Task() == test.Task || d.Op.Kind.Outside():
		test.Status, test.Why = Failed, d.Error()
	case d.Op.Task() < test.Task:
		test.Status = NotRun
		fallthrough
	default: // what the trace asks of its own task was right up to there
		test.Why = fmt.Sprintf("not played to its end: %s goes wrong on the way", d.Op.Kind.Function())
	}
	return d
}

// listen keeps what a trace has shown of the heap for the stage Heap.
func (g *grading) listen(name string, ops []trace.Op, r compare.Result) {
	if d := r.Heap; d != nil {
		task := d.Op.Task()
		g.heap[task] = append(g.heap[task], clue{name, Heap, sentence(d), ops, d})
	}
}

func (g *grading) advise(c directed.Case, r compare.Result) {
	if d := r.First(); d != nil && d.Op.Fail > 0 { // else it is no matter of failing allocations
		g.report.Advice = append(g.report.Advice, Advice{Name: c.Name, Task: c.Task, Sentence: c.Sentence, Text: d.Error()})
	}
}

// random plays traces that nobody wrote down, those of Outside with writes from
// outside. One finding for each task is enough.
func (g *grading) random(stage string) error {
	for i := 0; i < g.Traces && !g.weary(); i++ {
		ops := random.Trace(g.report.Seed+uint64(i), randomSteps, stage == Outside)
		r, err := g.play(ops)
		if err != nil {
			return err
		}
		if d := r.Heap; d != nil {
			g.listen(fmt.Sprintf("task%d_random_heap", d.Op.Task()), ops, r)
		}
		if d := r.State; d != nil && g.open(stage, d.Op.Task()) {
			name := fmt.Sprintf("task%d_%s", d.Op.Task(), strings.ReplaceAll(stage, " ", "_"))
			if err := g.tell(PartHidden, clue{name, stage, sentence(d), ops, d}); err != nil {
				return err
			}
		}
	}
	return nil
}

// heaps tells what the traces have shown of the heap.
func (g *grading) heaps() error {
	for task, clues := range g.heap {
		if len(clues) == 0 || !g.open(Heap, task) {
			continue
		}
		for i, c := range clues {
			if i > 0 && !c.difference.Same(clues[0].difference) {
				continue
			}
			if err := g.tell(PartMemory, c); err != nil {
				return err
			}
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
