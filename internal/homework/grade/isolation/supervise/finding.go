package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"llmmemory/internal/homework/course/trace"
)

// A Finding is one complaint.
type Finding struct {
	Kind     string // Valgrind's word: InvalidRead, Leak_DefinitelyLost, ...; empty for the sanitizers
	What     string // the complaint in the tool's words
	Function string // the call of the six that was running; empty if there was none
	Line     int    // of llm_memory.c; 0: unknown
}

// String returns the finding for a student.
func (f Finding) String() string {
	switch {
	case f.Line == 0:
		return f.What
	case f.Leak():
		lost, _, _ := strings.Cut(f.What, " in loss record")
		return fmt.Sprintf("llm_memory.c:%d: what is allocated here is not freed: %s", f.Line, lost)
	}
	return fmt.Sprintf("llm_memory.c:%d: %s", f.Line, f.What)
}

// Leak reports whether the finding is about memory that was not freed.
func (f Finding) Leak() bool { return strings.HasPrefix(f.Kind, "Leak_") }

// blameLastCall sets the function of a finding that has none, because its error arose in the grader's code. It does not
// change a leak. The function becomes the one that the submission ran last, because it may have caused the error. ops
// are the steps before the error. In some of them the grader did the work itself, and these do not count.
func (f *Finding) blameLastCall(ops []trace.Op) {
	for _, op := range slices.Backward(ops) {
		if f.Function == "" && !f.Leak() && !op.Given && !op.Kind.Outside() {
			f.Function = op.Kind.Function()
		}
	}
}

// ErrUnfinished means that the submission did not play all traces. Findings may be missing.
var ErrUnfinished = errors.New("did not finish")

type tool string

const (
	valgrind   tool = "under Memcheck"
	sanitizers tool = "with the sanitizers"
)

func (t tool) unfinished(format string, values ...any) error {
	return fmt.Errorf("%w %s: %w", ErrUnfinished, t, fmt.Errorf(format, values...))
}

// playedAll returns an error if the program did not read the whole file of steps. exit is added to its message. The
// program has inherited the open file from the grader, so both use the same offset. playedAll compares this offset with
// the size of the file.
func (t tool) playedAll(steps *os.File, exit string) error {
	played, err := steps.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("%s: %w", t, err)
	}
	info, err := steps.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", t, err)
	case played != info.Size():
		return t.unfinished("it ended in the middle of a call%s", exit)
	}
	return nil
}

type frame struct {
	Function string `xml:"fn"`
	File     string `xml:"file"`
	Line     int    `xml:"line"`
}

// place returns the innermost line of llm_memory.c in a stack, and the outermost of the homework's six functions.
func place(frames []frame) (function string, line int) {
	for _, f := range frames {
		if line == 0 && f.File == "llm_memory.c" {
			line = f.Line
		}
		if trace.TaskOf(f.Function) != 0 {
			function = f.Function
		}
	}
	return function, line
}
