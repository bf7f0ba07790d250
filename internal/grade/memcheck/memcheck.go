// Package memcheck plays traces under Valgrind and says which lines of the
// submission it complains of, one finding per line and kind.
package memcheck

import (
	"context"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"llmmemory/internal/grade/sandbox"
	"llmmemory/internal/grade/trace"
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

// patience is many times what Memcheck needs for all traces.
const patience = 30 * time.Second

// calls are the six, in which a complaint arises.
var calls = []string{"llm_init", "create_sequence", "fork_sequence", "append_kv", "free_sequence", "llm_destroy"}

// Run plays the traces, each on engines of its own, but not their writes from
// outside. program is linked with grader/watched.c.
func Run(program string, traces [][]trace.Op) ([]Finding, error) {
	file := program + ".steps"
	if err := writeSteps(file, traces); err != nil {
		return nil, err
	}
	steps, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer steps.Close()
	box := program + ".box"
	if err := os.Mkdir(box, 0o700); err != nil {
		return nil, err
	}
	if err := os.Chmod(box, 0o777); err != nil { // another uid writes there
		return nil, err
	}
	report := filepath.Join(box, "report.xml")
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		return nil, fmt.Errorf("memcheck: %w", err)
	}
	path, argv, err := sandbox.Watched(box, valgrind, "--xml=yes", "--xml-file="+report, "--child-silent-after-fork=yes", "--vgdb=no",
		"--leak-check=full", "--show-leak-kinds=definite,indirect,possible", "--errors-for-leak-kinds=definite,indirect,possible",
		program, "3")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Args = argv
	cmd.Dir = box
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TMPDIR=" + box}
	cmd.ExtraFiles = []*os.File{steps}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return nil, fmt.Errorf("memcheck: %w", err)
	}
	text, readErr := os.ReadFile(report)
	if readErr != nil {
		return nil, fmt.Errorf("memcheck: %w", readErr)
	}
	found, parseErr := parse(text)
	if ctx.Err() != nil {
		return found, fmt.Errorf("%w within %v", ErrUnfinished, patience)
	}
	if parseErr != nil || err != nil {
		return found, fmt.Errorf("%w: %w", ErrUnfinished, errors.Join(err, parseErr))
	}
	return found, nil
}

// writeSteps writes struct step of grader/watched.c.
func writeSteps(file string, traces [][]trace.Op) error {
	const end = uint32(trace.Destroy) + 1
	var bytes []byte
	for _, ops := range traces {
		for _, op := range ops {
			if op.Kind.Outside() {
				break // what follows it would not make sense without
			}
			if op.Fail > 0 {
				continue
			}
			bytes = step(bytes, uint32(op.Kind), int32(op.Engine), op.A, op.B)
		}
		bytes = step(bytes, end, 0, 0, 0)
	}
	return os.WriteFile(file, bytes, 0o644)
}

func step(to []byte, call uint32, engine, a, b int32) []byte {
	for _, n := range []uint32{call, uint32(engine), uint32(a), uint32(b)} {
		to = binary.NativeEndian.AppendUint32(to, n)
	}
	return to
}

type frame struct {
	Function string `xml:"fn"`
	File     string `xml:"file"`
	Line     int    `xml:"line"`
}

// parse reads Valgrind's XML, protocol 4.
func parse(text []byte) ([]Finding, error) {
	var report struct {
		Errors []struct {
			Kind  string `xml:"kind"`
			What  string `xml:"what"`
			XWhat string `xml:"xwhat>text"`
			Stack []struct {
				Frames []frame `xml:"frame"`
			} `xml:"stack"`
		} `xml:"error"`
	}
	err := xml.Unmarshal(text, &report)
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
		if slices.Contains(calls, f.Function) {
			function = f.Function
		}
	}
	return function, line
}

// String is the finding as a student reads it.
func (f Finding) String() string {
	if f.Line == 0 {
		return f.What
	}
	return "llm_memory.c:" + strconv.Itoa(f.Line) + ": " + f.What
}
