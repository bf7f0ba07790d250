// Package grade takes a submission through the stages and computes its points.
//
//	isolation/build     checks the text and the object file (the gate), compiles and links
//	judging/traces      has directed traces, which test sentences of the handout, and random traces
//	judging/compare     plays a trace on the submission (isolation/runner, in a sandbox) and on
//	                    the oracle, finds differences, and shortens the trace of a difference
//	isolation/supervise plays the same traces under Memcheck and with the sanitizers
//	judging/rules       checks static rules on the text
//	reporting           writes output for people
//
// A directed trace tests some functions. The grader does the work of the others by writing to the submission's memory
// (grading.isolate). points.go computes the points from the tests of a report; cmd/llmgrade/README.md has the table.
package grade

import (
	"errors"
	"fmt"
	"hash/fnv"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/homework/grade/isolation/runner"
	"llmmemory/internal/homework/grade/judging/compare"
	"llmmemory/internal/homework/grade/judging/traces"
	"llmmemory/internal/jobs"
)

const (
	randomTraces = 12 // of each kind: with and without writes from outside
	randomSteps  = 400
	shrinkTries  = 150
)

// A Grader grades submissions, several at a time.
type Grader struct {
	Seed      uint64 // of the random traces; 0: derived from the submission's text
	Only      string // play only the directed traces with this in their names
	Points    Points
	AllStages bool // run every stage for every task, even if an earlier stage has failed
	Traces    int  // number of random traces, and of those with writes from outside
	Tries     int  // limit of compare.Shrink
	kit       *build.Kit
	cases     []traces.Case
	listed    func() []byte // returns the cases as text, formatted once
	setting   Setting
	self      func() ([]byte, error) // returns the hash of this program
}

// NewGrader compiles the runner, with which every submission is linked. flags are added to the flags of the course.
func NewGrader(flags ...string) (*Grader, error) {
	cases, err := traces.Directed()
	if err != nil {
		return nil, err
	}
	kit, err := build.NewKit(flags...)
	if err != nil {
		return nil, err
	}
	setting, err := newSetting()
	if err != nil {
		return nil, errors.Join(err, kit.Close())
	}
	return &Grader{
		Points: DefaultPoints, Traces: randomTraces, Tries: shrinkTries,
		kit: kit, cases: cases, setting: setting, self: sync.OnceValues(jobs.Program),
		listed: sync.OnceValue(func() []byte { return list(cases) }),
	}, nil
}

// Version returns a name for the rules of grading: the traces, the points and the gate.
func (g *Grader) Version() string {
	h := fnv.New32a()
	_, _ = h.Write(g.listed())
	fmt.Fprintln(h, g.Points, g.kit.Gate.String(), g.Traces)
	return fmt.Sprintf("%d.%08x", edition, h.Sum32())
}

func list(cases []traces.Case) (text []byte) {
	for _, c := range cases {
		text = fmt.Appendln(text, c.Name, c.Ops)
	}
	return text
}

const edition = 11 // incremented with each change of the rules that is not a change of the traces

// SetGate replaces the rules of the gate.
func (g *Grader) SetGate(gate build.Gate) { g.kit.Gate = gate }

// Close removes the files of the builds.
func (g *Grader) Close() error { return g.kit.Close() }

// File grades one file. Every submission, however wrong, gets a Report. An error means that the grader failed.
func (g *Grader) File(path string) (*Report, error) {
	return g.grade(path, func(g *grading) error { return g.run() })
}

func (g *Grader) max() float64 {
	if g.Only == "" {
		return g.Points.Max()
	}
	var r Report
	for _, c := range g.cases {
		if !c.Advice && strings.Contains(c.Name, g.Only) {
			r.Tests = append(r.Tests, Test{Task: c.Task, Part: PartDirected})
		}
	}
	g.Points.award(&r)
	return r.MaxScore
}

// None returns the report of a student without a gradable file. reason says why the file cannot be graded.
func (g *Grader) None(path, reason string) *Report {
	return &Report{File: path, MaxScore: g.max(), Setting: g.setting, Rules: g.Version(), Rejected: &Rejection{Stage: NoFile, Text: reason}}
}

// Replay plays one trace on a submission and gives no points.
func (g *Grader) Replay(path string, ops []trace.Op) (*Report, error) {
	return g.grade(path, func(g *grading) error {
		g.report.Replay, g.report.MaxScore = true, 0
		r, err := g.play(ops)
		d := r.First()
		if d == nil || err != nil {
			return err
		}
		f := Finding{Name: "replay", Task: d.Op.Task(), Stage: Directed, Sentence: d.Sentence(""), Ops: ops[:d.Step+1], Difference: d}
		if f.Scene, err = compare.Look(g.program.Native(), f.Ops, d); err == nil {
			g.report.Findings = append(g.report.Findings, f)
		}
		return err
	})
}

// missing returns a note that lists the undefined functions of the submission.
func missing(program *build.Program) string {
	note := "it does not define " + strings.Join(program.Missing, ", ") + ": only the points of tests that call "
	if len(program.Missing) == 1 {
		note += "it are lost"
	} else {
		note += "them are lost"
	}
	if len(program.Misspelled) > 0 {
		note += ". Is it " + strings.Join(program.Misspelled, ", ") + ", with other capitals or underscores?"
	}
	return note
}

func (g *Grader) grade(path string, run func(*grading) error) (graded *Report, err error) {
	defer func() { // a panic must not stop the grading of the class
		if p := recover(); p != nil {
			graded, err = nil, fmt.Errorf("the grader failed internally: %v\n%s", p, debug.Stack())
		}
	}()
	begin := time.Now()
	r := &Report{File: path, MaxScore: g.max(), Seed: g.Seed, Setting: g.setting, Rules: g.Version()}
	source, err := ReadSource(path)
	if errors.Is(err, errNoSource) {
		r.Rejected = &Rejection{Stage: NoFile, Text: err.Error()}
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if r.Seed == 0 {
		r.Seed = seedOf(source)
	}
	r.Source = sameText(source)
	if otherHeader(path) {
		r.Header = "the llm_memory.h beside the file is not the course's; the course's was used"
		r.Notes = append(r.Notes, r.Header)
	}
	program, err := g.kit.Build(filepath.Base(path), source)
	switch refusal := (*build.Refusal)(nil); {
	case errors.Is(err, build.ErrRejected):
		r.Rejected, r.Time = &Rejection{Stage: Compile, Text: err.Error()}, time.Since(begin)
		return r, nil
	case errors.Is(err, build.ErrGate):
		r.Rejected = &Rejection{Stage: Gate, Text: err.Error(), Form: errors.As(err, &refusal) && refusal.Form()}
		r.Time = time.Since(begin)
		return r, nil
	case err != nil:
		return nil, err
	}
	defer program.Close()
	for _, a := range program.Advice {
		r.Advice = append(r.Advice, Advice{Name: "gate_" + a.Rule, Line: a.Line, Text: strings.TrimPrefix(a.Error(), build.ErrGate.Error()+": ")})
	}
	if len(program.Missing) > 0 {
		r.Notes = append(r.Notes, missing(program))
	}
	built := Stage{Name: Gate, Tasks: [Tasks]Status{Passed, Passed, Passed, Passed, Passed}}
	r.Stages = append(r.Stages, built)
	built.Name, built.Time = Compile, time.Since(begin)
	r.Stages = append(r.Stages, built)
	err = run(newGrading(g, r, program, source))
	if errors.Is(err, runner.ErrAttack) {
		r.reject(Attack, fmt.Sprintf("%s was ended: %v", filepath.Base(path), err))
	} else if err != nil {
		return nil, err
	}
	r.Time = time.Since(begin)
	return r, nil
}
