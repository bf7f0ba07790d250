package report

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/homework/grade/reporting/class"
	"llmmemory/internal/homework/grade/reporting/reproduce"
	"llmmemory/internal/terminal"
)

// Write writes the student's page of an entry: the report, or the reason why there is none. The page has the anchors
// finding-1, finding-2, ... and rejected.
func (e Entry) Write(w io.Writer) error {
	page := studentPage{Name: shown(e.Name), Override: e.Override, Flags: build.CourseFlags}
	page.Points, _ = e.Score()
	if e.Err != nil {
		page.Report, page.Trouble = &grade.Report{}, terminal.Visible(e.Err.Error())
		return write(w, studentLayout, page)
	}
	page.Report, page.Tasks, page.Stages = e.Report, tasksOf(e.Report), e.Report.AllStages()
	for i := range e.Report.Findings {
		page.Findings = append(page.Findings, newFinding(i+1, &e.Report.Findings[i]))
	}
	return write(w, studentLayout, page)
}

type studentPage struct {
	Name string
	*grade.Report
	Trouble  string          // why the grader failed
	Override *class.Override // decision of staff, or nil
	Points   float64         // the points that count
	Flags    string          // flags of the course
	Tasks    []task
	Stages   []grade.Stage
	Findings []finding
}

// A task is the outcome of one task of the handout.
type task struct {
	taskTitle
	Score, MaxScore float64
	Percent         float64
	Blocked         int // number of directed tests that were not run
	Parts           []part
	Tests           []grade.Test
}

// A part is the points of a task of one kind.
type part struct {
	Name            string
	Score, MaxScore float64
}

var partNames = map[grade.Part]string{
	grade.PartDirected: "sentences of the handout",
	grade.PartHidden:   "random traces",
	grade.PartMemory:   "memory",
}

func tasksOf(r *grade.Report) []task {
	var all []task
	for _, title := range taskTitles {
		t := task{taskTitle: title}
		for _, test := range r.Tests {
			if test.Task != title.Number {
				continue
			}
			t.Tests = append(t.Tests, test)
			t.Score += test.Score
			t.MaxScore += test.MaxScore
			if test.Status == grade.NotRun && test.Part == grade.PartDirected {
				t.Blocked++
			}
			name := partNames[test.Part]
			i := slices.IndexFunc(t.Parts, func(p part) bool { return p.Name == name })
			if i < 0 {
				i = len(t.Parts)
				t.Parts = append(t.Parts, part{Name: name})
			}
			t.Parts[i].Score += test.Score
			t.Parts[i].MaxScore += test.MaxScore
		}
		if len(t.Tests) > 0 {
			t.Percent = percent(t.Score, t.MaxScore)
			all = append(all, t)
		}
	}
	return all
}

// A finding is a mistake as the page shows it.
type finding struct {
	*grade.Finding
	Number   int
	Title    string
	In       taskTitle
	Pictures []template.HTML
	Calls    []call
	Earlier  int // steps before the calls
	Program  string
	Break    string // the function that gdb stops in
	Ignore   int    // how many calls of it come before
	NoMalloc bool   // an allocation fails, which the program cannot make happen
}

// A call is one of the operations that show a finding.
type call struct {
	Number int
	Code   string
	Note   string
	Here   bool // it is the one that goes wrong
}

const maxCalls = 10 // that are listed; the program has all of them

func newFinding(number int, source *grade.Finding) finding {
	f := finding{Finding: source, Number: number, Title: source.Headline(), Pictures: pictures(source.Scene, source.Difference)}
	if n := source.Task; n >= 1 && n <= grade.Tasks {
		f.In = taskTitles[n-1]
	}
	ops := source.Steps()
	if ops == nil {
		return f
	}
	f.Earlier = max(0, len(ops)-maxCalls)
	last := ops[len(ops)-1].Kind
	for i, op := range ops {
		if op.Kind == last && i < len(ops)-1 {
			f.Ignore++
		}
		f.NoMalloc = f.NoMalloc || op.Fail > 0
		if i >= f.Earlier {
			f.Calls = append(f.Calls, call{i + 1, strings.TrimSuffix(reproduce.Statement(op), ";"), note(op), i == len(ops)-1})
		}
	}
	f.Program, f.Break = reproduce.Program(source.Name, ops, source.Difference), last.Function()
	return f
}

// writes explains the tester's writes between two calls.
var writes = map[trace.Kind]string{
	trace.Hole:     "the tester unmaps a logical block of the sequence between two calls, and keeps the counts right",
	trace.Move:     "the tester makes two slots of the L1 table change places",
	trace.Relocate: "the tester moves a table to another address",
	trace.Rename:   "the tester gives the sequence another id",
	trace.Unlink:   "the tester takes the sequence out of the list",
	trace.Count:    "the tester sets kv_count",
	trace.Share:    "the tester maps a logical block to a block of the other sequence",
	trace.Table:    "the tester adds an L2 table without a mapped entry",
	trace.Map:      "the tester maps a logical block of the sequence, and keeps the counts right",
	trace.Place:    "the tester maps a logical block of the sequence, and keeps the counts right",
}

// note explains a step that is not a plain call.
func note(op trace.Op) string {
	said := writes[op.Kind]
	switch {
	case op.Large():
		said = largePool(op)
	case op.Kind == trace.Init && op.A >= 0:
		said = fmt.Sprintf("a pool of %s", plural(int(op.Pool())/course.BlockSize, "block", "blocks"))
	}
	if op.Fail > 0 {
		said = strings.TrimPrefix(fmt.Sprintf("%s; allocation %d of this call fails", said, op.Fail), "; ")
	}
	return said
}

func largePool(op trace.Op) string {
	return fmt.Sprintf("a pool of %d GiB: offsets in it do not fit in an int", op.Pool()>>30)
}
