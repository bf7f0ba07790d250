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

// A tally is what a submission keeps of each task's points: each directed trace
// is worth the same, and everything else together is worth one of them.
type tally struct {
	asked, kept [tasks + 1]int
	failed      [tasks + 1]bool // in what is not directed
	hangs       int
}

func (t *tally) points() float64 {
	sum := 0.0
	for task := 1; task <= tasks; task++ {
		asked, kept := t.asked[task]+1, t.kept[task]
		if !t.failed[task] {
			kept++
		}
		sum += pointsPerTask * float64(kept) / float64(asked)
	}
	return sum
}

// tired is how many calls that do not come back are waited for.
const tired = 3

// play runs the directed traces, the random ones, and Memcheck.
func (g *Grader) play(r *Report, program *build.Program, source []byte) error {
	t := &tally{}
	for _, stage := range []func(*Report, *build.Program, *tally) error{
		g.directed,
		func(r *Report, program *build.Program, t *tally) error {
			return g.random(r, program, t, g.seed(source))
		},
		g.memcheck,
	} {
		if err := stage(r, program, t); err != nil {
			return err
		}
		if g.Only != "" { // names are of directed traces
			break
		}
	}
	r.Score = t.points()
	return nil
}

// ErrOnly is wrapped when no trace has the name that Only asks for.
var ErrOnly = errors.New("no trace is called so")

func (g *Grader) directed(r *Report, program *build.Program, t *tally) error {
	played := false
	for _, c := range g.cases {
		if c.Advice || !strings.Contains(c.Name, g.Only) {
			continue
		}
		t.asked[c.Task]++
		played = true
		if t.hangs == tired {
			continue
		}
		d, err := compare.Play(program.Native(), c.Ops)
		if err != nil {
			return err
		}
		if d == nil {
			t.kept[c.Task]++
			continue
		}
		r.Findings = append(r.Findings, Finding{c.Name, c.Sentence, c.Ops, d})
		if d.Hangs {
			t.hangs++
		}
	}
	if !played {
		return fmt.Errorf("%w: %q", ErrOnly, g.Only)
	}
	if g.Only != "" {
		r.Notes = append(r.Notes, fmt.Sprintf("only the traces with %q in their name were played", g.Only))
	}
	if t.hangs == tired {
		r.Notes = append(r.Notes, "no more was run, because three calls did not come back")
	}
	return nil
}

// random plays traces that nobody wrote down. One finding for each task is
// enough, made short.
func (g *Grader) random(r *Report, program *build.Program, t *tally, seed uint64) error {
	play := func(ops []trace.Op) (*compare.Difference, error) { return compare.Play(program.Native(), ops) }
	for i := 0; i < g.Traces && t.hangs < tired; i++ {
		ops := random.Trace(seed+uint64(i), randomSteps, i%2 == 1)
		d, err := play(ops)
		if err != nil {
			return err
		}
		if d == nil {
			continue
		}
		task := taskOf(d.Op)
		if t.failed[task] {
			continue
		}
		t.failed[task] = true
		if d.Hangs { // not to be waited for again and again
			t.hangs++
		} else if ops, d, err = shrink.Shrink(ops, d, play, g.Tries); err != nil {
			return err
		}
		r.Findings = append(r.Findings, Finding{fmt.Sprintf("task%d_random", task), "", ops, d})
	}
	return nil
}

// memcheck plays the directed traces under Memcheck. A submission that dies is not
// watched dying.
func (g *Grader) memcheck(r *Report, program *build.Program, t *tally) error {
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
		for task := range t.failed { // which one it would have been is not known
			t.failed[task] = true
		}
		r.Findings = append(r.Findings, Finding{Name: "memcheck", Difference: &compare.Difference{
			Step: -1, Channel: compare.Death, Field: "Memcheck", Expected: "to play every trace to its end", Actual: err.Error()}})
	} else if err != nil {
		return err
	}
	for _, f := range found {
		task := taskOfCall[f.Function]
		if task == 0 { // outside the six: what is lost at the end
			task = tasks
		}
		t.failed[task] = true
		r.Findings = append(r.Findings, Finding{
			Name:       fmt.Sprintf("task%d_memcheck", task),
			Sentence:   "Your code will be rigorously tested with Valgrind. Memory leaks [...] are strictly forbidden and must report 0 bytes lost.",
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
