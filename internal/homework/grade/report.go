package grade

import (
	"slices"
	"strings"
	"time"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/judging/compare"
)

// A Report is the result of grading one submission. It can be stored as JSON and read back.
type Report struct {
	File     string
	Score    float64
	MaxScore float64
	Rejected *Rejection `json:",omitempty"` // it was not run
	Stages   stages
	Tests    []Test // they give the points, and add up to MaxScore
	Findings []Finding
	Advice   []Advice
	Notes    []string // further information for the reader
	Header   string   `json:",omitempty"` // says that the submission has another llm_memory.h
	Source   string   // a hash that ignores white space
	Seed     uint64   // of the random traces
	Rules    string   // version of the rules
	Replay   bool     `json:",omitempty"` // one trace was replayed: there are no points
	Setting  Setting
	Time     time.Duration
}

// A Rejection says why a submission was not run, or why its run was stopped. The submission scores 0, and staff
// should look at the submission.
type Rejection struct {
	Stage StageName // NoFile, Gate, Compile or Attack
	Text  string
	Form  bool `json:",omitempty"` // a rule of the gate about the form of the file, which is no attack
}

// Reason returns the reason in one line. This is the compiler's first error, or the first line of the text without a
// beginning such as "llm_memory.c is not run: ".
func (r *Rejection) Reason() string {
	first, _, _ := strings.Cut(strings.TrimSpace(r.Text), "\n")
	if r.Stage == Compile {
		for line := range strings.Lines(r.Text) {
			if strings.Contains(line, "error: ") {
				return strings.TrimSpace(line)
			}
		}
	}
	for _, before := range []string{" is not run: ", " was ended: "} {
		if _, after, found := strings.Cut(first, before); found {
			return after
		}
	}
	return first
}

// A Status is the outcome of a stage or a test.
type Status string

// The statuses. NotRun is no failure: another mistake must be fixed before the test or stage can be run.
const (
	Passed Status = "passed"
	Failed Status = "failed"
	NotRun Status = "not run"
)

// A StageName names a stage of grading.
type StageName string

// The stages, in their order.
const (
	NoFile     StageName = "no file" // there is nothing to grade
	Gate       StageName = "gate"
	Attack     StageName = "attack" // only of a Rejection: a system call ended the run
	Compile    StageName = "compile"
	Directed   StageName = "directed traces"
	OwnCalls   StageName = "own calls"
	Random     StageName = "random traces"
	Outside    StageName = "outside writes"
	Heap       StageName = "heap"
	Memcheck   StageName = "Memcheck"
	Sanitizers StageName = "sanitizers"
	Rules      StageName = "static rules"
)

// A Stage is the outcome of one stage of grading. Most stages skip a task in which an earlier stage has found a
// mistake.
type Stage struct {
	Name  StageName
	Tasks [Tasks]Status // index 0 is task 1
	Time  time.Duration
}

// AllStages returns all stages, including those that were not run. If no trace was played for a task, each stage that
// plays traces counts as not run for this task.
func (r *Report) AllStages() []Stage {
	all := slices.Clone([]Stage(r.Stages))
	for _, name := range []StageName{Gate, Compile, Directed, OwnCalls, Random, Outside, Heap, Memcheck, Sanitizers, Rules} {
		if r.Stages.find(name) == nil {
			all = append(all, Stage{Name: name, Tasks: [Tasks]Status{NotRun, NotRun, NotRun, NotRun, NotRun}})
		}
	}
	for i := range all {
		for task := range Tasks {
			if s := &all[i]; s.Tasks[task] == Passed && s.Name.plays() && !r.played(task+1) {
				s.Tasks[task] = NotRun
			}
		}
	}
	return all
}

// Calls reports whether the stage plays traces to check what the calls do.
func (n StageName) Calls() bool {
	return n == Directed || n == OwnCalls || n == Random || n == Outside
}

func (n StageName) plays() bool { return n != Gate && n != Compile && n != Rules }

func (r *Report) played(task int) bool {
	return slices.ContainsFunc(r.Tests, func(t Test) bool {
		return t.Task == task && t.Part == PartDirected && t.Status != NotRun
	})
}

// Status returns the worst status of the tasks.
func (s *Stage) Status() Status {
	worst := Passed
	for _, status := range s.Tasks {
		if status == Failed {
			return Failed
		}
		if status == NotRun {
			worst = NotRun
		}
	}
	return worst
}

// A Test is something that gives points.
type Test struct {
	Task     int
	Name     string
	Part     Part
	Sentence string // of the handout
	Status   Status
	Why      string `json:",omitempty"` // why it was not run, or not to its end
	Score    float64
	MaxScore float64
}

// A Part is one of the three parts that a task's points are divided into.
type Part string

// The parts.
const (
	PartDirected Part = "directed" // the same traces for all submissions, each for a sentence of the handout
	PartHidden   Part = "hidden"   // own calls, random traces, writes from outside
	PartMemory   Part = "memory"   // the heap, Memcheck, sanitizers, static rules
)

// A Finding is one mistake.
type Finding struct {
	Name     string
	Task     int
	Stage    StageName
	Gain     float64    // points gained by fixing it
	Sentence string     // of the handout
	Ops      []trace.Op `json:",omitempty"` // the steps up to the difference, or more
	*compare.Difference
	Lines []string       `json:",omitempty"` // lines of llm_memory.c, with what happens there
	Same  []string       `json:",omitempty"` // names of other traces that show the same
	Scene *compare.Scene `json:",omitempty"` // the memory around the last step
}

// Headline is the finding in one sentence, for a student.
func (f *Finding) Headline() string {
	switch {
	case f.Difference == nil:
		return f.Name
	case f.Step >= 0:
		return f.Difference.Headline()
	case f.Stage == Rules:
		return f.Actual
	case f.Channel == "":
		return f.Field + " is " + f.Actual
	}
	return string(f.Stage) + " complains: " + f.Actual
}

// Steps returns the steps that show the finding. The last of them goes wrong. Steps returns nil if no trace shows the
// finding.
func (f *Finding) Steps() []trace.Op {
	if f.Difference == nil || f.Step < 0 || f.Step >= len(f.Ops) {
		return nil
	}
	return f.Ops[:f.Step+1]
}

// Trace returns the steps as llmgrade --replay reads them.
func (f *Finding) Trace() string {
	return trace.Text(f.Name+": "+f.Headline(), f.Steps())
}

// An Advice is a remark that costs no points.
type Advice struct {
	Name     string
	Task     int
	Sentence string // of the handout
	Line     int    `json:",omitempty"` // of llm_memory.c
	Text     string
}

func (r *Report) reject(stage StageName, text string) {
	r.Rejected = &Rejection{Stage: stage, Text: text}
	r.Score, r.Stages, r.Tests, r.Findings, r.Advice, r.Notes = 0, nil, nil, nil, nil, nil
}

// Failed returns the names of the tests that cost points.
func (r *Report) Failed() []string {
	names := []string{}
	if r.Rejected != nil {
		return append(names, string(r.Rejected.Stage))
	}
	for _, t := range r.Tests {
		if t.Score < t.MaxScore {
			names = append(names, t.Name)
		}
	}
	if len(r.Tests) == 0 { // a replay
		for _, f := range r.Findings {
			names = append(names, f.Name)
		}
	}
	return names
}

// ByTask returns the points of each task.
func (r *Report) ByTask() [Tasks]float64 {
	var points [Tasks]float64
	for _, t := range r.Tests {
		points[t.Task-1] += t.Score
	}
	for i := range points {
		points[i] = round(points[i])
	}
	return points
}

// gains sets the Gain of each finding. A Gain is the sum of the points lost in the tests that fail because of the
// finding. If the task has no other mistake, it is the sum over all tests of the task.
func (r *Report) gains() {
	for i := range r.Findings {
		f := &r.Findings[i]
		alone := !slices.ContainsFunc(r.Findings, func(o Finding) bool {
			return o.Task == f.Task && o.Name != f.Name
		})
		for _, t := range r.Tests {
			if t.Task == f.Task && (alone || t.Name == f.Name || slices.Contains(f.Same, t.Name)) {
				f.Gain += t.MaxScore - t.Score
			}
		}
		f.Gain = round(f.Gain)
	}
}
