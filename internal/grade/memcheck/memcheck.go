// Package memcheck plays traces under Valgrind and says which lines of the
// submission it complains of, one finding per line and kind.
package memcheck

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/cputime"
	"llmmemory/internal/grade/sandbox"
	"llmmemory/internal/grade/supervise"
)

// A Finding is one complaint.
type Finding struct {
	Kind     string // Valgrind's word: InvalidRead, Leak_DefinitelyLost, ...
	What     string // its sentence
	Function string // the call of the six that was running, or "" where none was
	Line     int    // of llm_memory.c; 0: none of its lines was involved
}

// ErrUnfinished is wrapped when the submission did not play all traces under
// Memcheck: its complaints may be incomplete.
var ErrUnfinished = errors.New("did not finish under Memcheck")

// A Stuck is the error of a submission whose time was over in a call. It wraps ErrUnfinished.
type Stuck struct {
	Function string
	err      error
}

func (s *Stuck) Error() string { return s.Function + " " + s.err.Error() }
func (s *Stuck) Unwrap() error { return s.err }

// Memory is the address space of Valgrind with the submission in it, which needs
// a quarter of it.
const memory = 640 << 20

// mostReport is more than Valgrind writes before it gives up (1000 complaints).
const mostReport = 8 << 20

// complained is Valgrind's exit status when it has, whatever the submission's.
const complained = 99

// Run plays the traces, each on engines of its own, but not their writes from
// outside. program is linked with grader/process/watched.c.
func Run(program string, steps supervise.Steps) ([]Finding, error) {
	file, err := steps.File(filepath.Dir(program))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	box, err := os.MkdirTemp(filepath.Dir(program), "box-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(box, 0o777); err != nil { // another uid writes there
		return nil, err
	}
	report, exit, err := run(program, box, file)
	if err != nil && !errors.Is(err, ErrUnfinished) {
		return nil, err
	}
	if function := supervise.Last(file); errors.Is(err, cputime.ErrTime) && function != "" {
		err = &Stuck{function, err}
	}
	found, parseErr := parse(report)
	if err == nil {
		err = agree(found, parseErr, exit, file)
	}
	return found, err
}

// agree says whether Memcheck has seen the whole run. The submission could write
// to the report as long as it has found out where, and can end the run at any
// time; but the exit status is Valgrind's own, and the offset of steps shows how
// far it was played.
func agree(found []Finding, parseErr error, exit int, steps *os.File) error {
	all, err := supervise.PlayedAll(steps)
	if err != nil {
		return fmt.Errorf("memcheck: %w", err)
	}
	switch {
	case parseErr != nil:
		return fmt.Errorf("%w: %w", ErrUnfinished, parseErr)
	case exit != 0 && exit != complained:
		return fmt.Errorf("%w: it ended with exit status %d", ErrUnfinished, exit)
	case !all:
		return fmt.Errorf("%w: it ended in the middle of a call", ErrUnfinished)
	case (exit == complained) != (len(found) > 0):
		return fmt.Errorf("%w: the report has %d complaints, but Valgrind's exit status is %d", ErrUnfinished, len(found), exit)
	}
	return nil
}

// run is Valgrind's report, through a pipe, which nobody can write a second
// time, and its exit status.
func run(program, box string, steps *os.File) (report []byte, exit int, err error) {
	// A distribution may have a script in front of it, for which the submission
	// would have to be allowed a shell.
	valgrind, err := exec.LookPath("valgrind.bin")
	if err != nil {
		if valgrind, err = exec.LookPath("valgrind"); err != nil {
			return nil, 0, fmt.Errorf("memcheck: %w", err)
		}
	}
	libraries, err := filepath.Glob(filepath.Join(filepath.Dir(program), "..", "lib?.so.6")) // its own C library: package build
	if err != nil {
		return nil, 0, err
	}
	allowed := sandbox.Box{Folder: box, Read: append(libraries, program), Memory: memory}
	path, argv, err := allowed.Command(valgrind, "--xml=yes", "--xml-fd=4", "--child-silent-after-fork=yes", "--vgdb=no",
		"--read-inline-info=no", // a fifth of its start; the line of an inlined function is told all the same
		"--leak-check=full", "--show-leak-kinds=all", "--errors-for-leak-kinds=all",
		"--error-exitcode="+strconv.Itoa(complained), program, "3")
	if err != nil {
		return nil, 0, err
	}
	cmd := &exec.Cmd{Path: path, Args: argv, Dir: box, Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TMPDIR=" + box}}
	end, err := supervise.Run(cmd, func(pipe *os.File) { cmd.ExtraFiles = []*os.File{steps, pipe} }, supervise.Patience, supervise.Head(mostReport))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("memcheck: %w", err)
	case end.Over != nil:
		return end.Said, 0, fmt.Errorf("%w: %w", ErrUnfinished, end.Over)
	case end.Signal != 0:
		return end.Said, 0, fmt.Errorf("%w: it ended by %v", ErrUnfinished, end.Signal)
	}
	return end.Said, end.Exit, nil
}

type frame struct {
	Function string `xml:"fn"`
	File     string `xml:"file"`
	Line     int    `xml:"line"`
}

// parse reads Valgrind's XML, protocol 4: one element that says at its end that
// it is finished, and nothing after it.
func parse(text []byte) ([]Finding, error) {
	var report struct {
		States []string `xml:"status>state"`
		Errors []struct {
			Kind  string `xml:"kind"`
			What  string `xml:"what"`
			XWhat string `xml:"xwhat>text"`
			Stack []struct {
				Frames []frame `xml:"frame"`
			} `xml:"stack"`
		} `xml:"error"`
	}
	decoder := xml.NewDecoder(bytes.NewReader(text))
	err := decoder.Decode(&report)
	if err == nil && !slices.Equal(report.States, []string{"RUNNING", "FINISHED"}) {
		err = fmt.Errorf("the report ends in the state %q", report.States)
	}
	if rest := bytes.TrimSpace(text[decoder.InputOffset():]); err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes after the end of the report", len(rest))
	}
	var found []Finding
	for _, e := range report.Errors {
		f := Finding{Kind: e.Kind, What: e.What + e.XWhat}
		if len(e.Stack) > 0 {
			f.Function, f.Line = place(e.Stack[0].Frames)
		}
		if !slices.ContainsFunc(found, func(o Finding) bool { return o.Kind == f.Kind && o.Line == f.Line && o.Function == f.Function }) {
			found = append(found, f)
		}
	}
	return found, err
}

// place is the innermost line of the submission, and the outermost of the calls.
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

// String is the finding as a student reads it.
func (f Finding) String() string { return supervise.At(f.Line, f.What) }
