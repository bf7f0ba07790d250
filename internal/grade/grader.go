package grade

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
	"time"

	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/compare"
	"llmmemory/internal/grade/directed"
	"llmmemory/internal/grade/memcheck"
	"llmmemory/internal/grade/random"
	"llmmemory/internal/grade/shrink"
	"llmmemory/internal/grade/trace"
)

const (
	tasks         = 5
	pointsPerTask = 20
	randomTraces  = 24
	randomSteps   = 400
	shrinkTries   = 150
)

// A Grader grades any number of submissions.
type Grader struct {
	Seed   uint64 // for the random traces; 0: of the submission's own text
	Only   string // part of the names of the traces to play; all if empty
	Traces int    // random ones
	Tries  int    // to make a random one shorter
	kit    *build.Kit
	cases  []directed.Case
}

// NewGrader compiles what every submission is linked with.
func NewGrader() (*Grader, error) {
	cases, err := directed.Cases()
	if err != nil {
		return nil, err
	}
	kit, err := build.NewKit()
	if err != nil {
		return nil, err
	}
	return &Grader{kit: kit, cases: cases, Traces: randomTraces, Tries: shrinkTries}, nil
}

// Close removes what the builds have left.
func (g *Grader) Close() error { return g.kit.Close() }

// Replay plays one trace on a submission.
func (g *Grader) Replay(path string, ops []trace.Op) (*Report, error) {
	return g.grade(path, func(r *Report, program *build.Program, _ []byte) error {
		d, err := compare.Play(program.Native(), ops)
		if d != nil {
			r.Findings = append(r.Findings, Finding{"replay", "", ops, d})
		} else {
			r.Score = r.MaxScore
		}
		return err
	})
}

// A Finding is one thing that cost points.
type Finding struct {
	Name     string
	Sentence string // of the handout
	Ops      []trace.Op
	*compare.Difference
}

// A Report is what one submission got, and why.
type Report struct {
	File     string
	Score    float64
	MaxScore float64
	Findings []Finding
	Notes    []string // what else a reader must know
	Rejected error    // why it was not run: build.ErrRejected or build.ErrGate
	Time     time.Duration
}

// Failed names what cost points.
func (r *Report) Failed() []string {
	names := []string{}
	switch {
	case errors.Is(r.Rejected, build.ErrRejected):
		names = append(names, "compile")
	case r.Rejected != nil:
		names = append(names, "gate")
	}
	for _, f := range r.Findings {
		names = append(names, f.Name)
	}
	return names
}

// File grades one file. The error is trouble of the grader's own; a submission
// that is wrong in any way has a Report.
func (g *Grader) File(path string) (*Report, error) { return g.grade(path, g.play) }

func (g *Grader) grade(path string, run func(*Report, *build.Program, []byte) error) (*Report, error) {
	begin := time.Now()
	r := &Report{File: path, MaxScore: tasks * pointsPerTask}
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the submission: %w", err)
	}
	program, err := g.kit.Build(path, source)
	if errors.Is(err, build.ErrRejected) || errors.Is(err, build.ErrGate) {
		r.Rejected = err
		r.Time = time.Since(begin)
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	defer program.Close()
	if err := run(r, program, source); err != nil {
		return nil, err
	}
	r.Time = time.Since(begin)
	return r, nil
}

// play runs the directed traces and then the random ones. Each trace is worth
// the same within its task; the random traces of one task count as one.
func (g *Grader) play(r *Report, program *build.Program, source []byte) error {
	var asked, kept [tasks + 1]int
	for _, c := range g.cases {
		if c.Advice || !strings.Contains(c.Name, g.Only) {
			continue
		}
		asked[c.Task]++
		d, err := compare.Play(program.Native(), c.Ops)
		if err != nil {
			return err
		}
		if d == nil {
			kept[c.Task]++
			continue
		}
		r.Findings = append(r.Findings, Finding{c.Name, c.Sentence, c.Ops, d})
	}
	var failed [tasks + 1]bool
	traces := g.Traces
	if g.Only != "" {
		traces = 0
	}
	for i := range uint64(traces) {
		ops := random.Trace(g.seed(source)+i, randomSteps, i%2 == 1)
		d, err := compare.Play(program.Native(), ops)
		if err != nil {
			return err
		}
		if d == nil {
			continue
		}
		if task := taskOf(d.Op); !failed[task] {
			failed[task] = true
			play := func(ops []trace.Op) (*compare.Difference, error) { return compare.Play(program.Native(), ops) }
			if ops, d, err = shrink.Shrink(ops, d, play, g.Tries); err != nil {
				return err
			}
			r.Findings = append(r.Findings, Finding{fmt.Sprintf("task%d_random", task), "", ops, d})
		}
	}
	if g.Only == "" {
		if err := g.memcheck(r, program, &failed); err != nil {
			return err
		}
	}
	for task := 1; task <= tasks; task++ {
		if traces > 0 || asked[task] == 0 {
			asked[task]++
			if !failed[task] {
				kept[task]++
			}
		}
		r.Score += pointsPerTask * float64(kept[task]) / float64(asked[task])
	}
	return nil
}

// memcheck plays the directed traces under Memcheck. A submission that dies is not
// watched dying.
func (g *Grader) memcheck(r *Report, program *build.Program, failed *[tasks + 1]bool) error {
	if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Channel == compare.Death }) {
		r.Notes = append(r.Notes, "Memcheck was not run, because a call does not return")
		return nil
	}
	var traces [][]trace.Op
	for _, c := range g.cases {
		if !c.Advice {
			traces = append(traces, c.Ops)
		}
	}
	found, err := memcheck.Run(program.Watched(), traces)
	if errors.Is(err, memcheck.ErrUnfinished) {
		r.Notes = append(r.Notes, err.Error())
	} else if err != nil {
		return err
	}
	for _, f := range found {
		task := taskOfCall[f.Function]
		if task == 0 { // outside the six: what is lost at the end
			task = tasks
		}
		failed[task] = true
		r.Findings = append(r.Findings, Finding{
			Name:       fmt.Sprintf("task%d_memcheck", task),
			Sentence:   "The program must run without errors and leaks under Valgrind.",
			Difference: &compare.Difference{Step: -1, Channel: compare.Heap, Field: "Memcheck", Expected: "no error", Actual: f.String()},
		})
	}
	return nil
}

var taskOfCall = map[string]int{"llm_init": 1, "create_sequence": 2, "free_sequence": 2, "fork_sequence": 3, "append_kv": 4, "llm_destroy": 5}

func (g *Grader) seed(source []byte) uint64 {
	if g.Seed != 0 {
		return g.Seed
	}
	h := fnv.New64a()
	_, _ = h.Write(source)
	return h.Sum64()
}

func taskOf(op trace.Op) int {
	switch op.Kind {
	case trace.Init:
		return 1
	case trace.Create, trace.Free:
		return 2
	case trace.Fork:
		return 3
	case trace.Destroy:
		return 5
	default:
		return 4
	}
}
