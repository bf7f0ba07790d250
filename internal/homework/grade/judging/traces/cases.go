// Package traces contains the traces that grade submissions. Directed traces follow the handout task by task: each
// has a name, the sentence that it tests, and the calls. A trace has the same name as the test of the C suite
// (grader/suite) that tests the same behaviour, if there is one. Random traces depend only on the arguments of Random.
package traces

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
)

// A Case is one named trace.
type Case struct {
	Task     int // of the handout, 1 to 5
	Name     string
	Sentence string // of the handout
	Advice   bool   // the handout does not ask for it; it gives no points
	Ops      []trace.Op
	Real     []trace.Kind // the functions under test
	Refuses  bool         // they only have to refuse
	Shape    bool         // it tests how memory is allocated, not its content
	Sweep    bool         // it is long: it is played once
}

//go:embed task*.trace
var files embed.FS

// Directed returns every directed trace, in the order of the handout.
func Directed() ([]Case, error) {
	var all []Case
	for task := 1; task <= 5; task++ {
		file := fmt.Sprintf("task%d.trace", task)
		text, err := files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, part := range sections(string(text)) {
			name := part.name
			ops, err := trace.Parse(part.body)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", file, name, err)
			}
			c := Case{Task: task, Name: name, Sentence: part.sentence, Advice: strings.HasPrefix(name, "advice_"), Ops: ops, Real: tested(task, name)}
			c.Sweep = slices.ContainsFunc(ops, func(op trace.Op) bool { return op.Kind == trace.Forks && op.C > 1000 })
			c.Shape = strings.Contains(name, "_allocations_of_their_own")
			if c.Refuses, err = c.refuses(); err != nil {
				return nil, err
			}
			all = append(all, c)
		}
		sweeps, err := sweepsOf(task)
		if err != nil {
			return nil, err
		}
		all = append(all, sweeps...)
	}
	return all, nil
}

// A section is the part of a trace file that follows a line "== name  sentence".
type section struct{ name, sentence, body string }

func sections(text string) (all []section) {
	for _, part := range strings.Split("\n"+text, "\n== ")[1:] {
		var s section
		title, body, _ := strings.Cut(part, "\n")
		s.name, s.sentence, _ = strings.Cut(title, "  ")
		s.body = body
		all = append(all, s)
	}
	return all
}

func tested(task int, name string) []trace.Kind {
	switch {
	case strings.HasPrefix(name, "task2_free_"):
		return []trace.Kind{trace.Free}
	case name == "task2_refuses_null_engine":
		return []trace.Kind{trace.Create, trace.Free}
	}
	return [][]trace.Kind{1: {trace.Init}, 2: {trace.Create}, 3: {trace.Fork}, 4: {trace.Append}, 5: {trace.Destroy}}[task]
}

func (c *Case) refuses() (bool, error) {
	w, err := oracle.New()
	if err != nil {
		return false, err
	}
	defer w.Close()
	for _, op := range c.Ops {
		if op.Kind.Outside() {
			w.Write(op)
		} else if outcome := w.Play(op); slices.Contains(c.Real, op.Kind.Single()) && !outcome.Refused() {
			return false, nil
		}
	}
	return true, nil
}
