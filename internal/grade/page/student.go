package page

import (
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade"
	"llmmemory/internal/grade/build"
	"llmmemory/internal/grade/class"
	"llmmemory/internal/grade/drawing"
	"llmmemory/internal/grade/reproduce"
)

// Student writes the page of one submission. The name is how it is called there,
// whatever characters it has. Everything in the report is told: what a student
// must not see yet has to be taken out before. What staff decided is told first.
//
// The page has the anchors finding-1, finding-2, ... and rejected.
func Student(w io.Writer, r *grade.Report, name string, o *class.Override) error {
	page := studentPage{Name: shown(name), Report: r, Override: o, Points: r.Score, Flags: build.CourseFlags, Tasks: tasksOf(r), Stages: r.AllStages()}
	if o != nil && o.Points != nil {
		page.Points = *o.Points
	}
	for i := range r.Findings {
		page.Findings = append(page.Findings, newFinding(i+1, &r.Findings[i]))
	}
	return write(w, studentLayout, page)
}

type studentPage struct {
	Name string
	*grade.Report
	Override *class.Override // what staff decided; nil: nothing
	Points   float64         // what counts
	Flags    string          // that the course compiles with
	Tasks    []task
	Stages   []grade.Stage
	Findings []finding
}

// A task is what one task of the handout brought.
type task struct {
	taskTitle
	Score, MaxScore float64
	Percent         float64
	Blocked         int // directed tests that were not run
	Parts           []part
	Tests           []grade.Test
}

// A part is a task's points of one kind.
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

// A finding is a mistake as its page tells it.
type finding struct {
	*grade.Finding
	Number   int
	Title    string
	In       taskTitle
	Pictures []template.HTML
	Steps    []step
	Earlier  int // steps before those
	Program  string
	Break    string // the function that gdb stops in
	Ignore   int    // how many calls of it come before
	NoMalloc bool   // an allocation fails, which the program cannot make happen
	Trace    string
}

// A step is one of the operations that show a finding.
type step struct {
	Number int
	Code   string
	Note   string
	Here   bool // it is the one that goes wrong
}

func newFinding(number int, from *grade.Finding) finding {
	f := finding{Finding: from, Number: number}
	if n := from.Task; n >= 1 && n <= grade.Tasks {
		f.In = taskTitles[n-1]
	}
	d := from.Difference
	if d == nil {
		f.Title = from.Name
		return f
	}
	f.Title = from.Headline()
	for _, picture := range drawing.SVG(from.Scene, d) {
		f.Pictures = append(f.Pictures, template.HTML(picture)) // escaped there
	}
	if d.Step < 0 || d.Step >= len(from.Ops) {
		return f
	}
	ops := from.Ops[:d.Step+1]
	f.Steps, f.Earlier = steps(ops)
	f.Program = reproduce.Program(from.Name, ops, d)
	last := ops[len(ops)-1]
	f.Break = last.Kind.Function()
	for _, op := range ops {
		if op.Kind == last.Kind {
			f.Ignore++
		}
		f.NoMalloc = f.NoMalloc || op.Fail > 0
	}
	f.Ignore--
	f.Trace = fmt.Sprintf("# %s: %s\n", from.Name, d.Headline())
	for _, op := range ops {
		f.Trace += op.String() + "\n"
	}
	return f
}

// mostSteps is how many steps are listed; all of them are in the program.
const mostSteps = 10

func steps(ops []trace.Op) (last []step, earlier int) {
	earlier = max(0, len(ops)-mostSteps)
	for i, op := range ops[earlier:] {
		last = append(last, step{
			Number: earlier + i + 1, Code: strings.TrimSuffix(reproduce.Statement(op), ";"),
			Note: note(op), Here: earlier+i == len(ops)-1,
		})
	}
	return last, earlier
}

// note explains what is not a plain call.
func note(op trace.Op) string {
	var said []string
	switch op.Kind {
	case trace.Init:
		if op.A >= 0 {
			said = append(said, fmt.Sprintf("a pool of %s", plural(int(op.Pool())/64, "block", "blocks")))
		}
	case trace.Hole:
		said = append(said, "the tester unmaps a logical block of the sequence between two calls, and keeps the counts right")
	case trace.Move:
		said = append(said, "the tester makes two slots of the L1 table change places")
	case trace.Relocate:
		said = append(said, "the tester moves a table to another address")
	case trace.Rename:
		said = append(said, "the tester gives the sequence another id")
	case trace.Unlink:
		said = append(said, "the tester takes the sequence out of the list")
	}
	if op.Fail > 0 {
		said = append(said, fmt.Sprintf("allocation %d of this call fails", op.Fail))
	}
	return strings.Join(said, "; ")
}
