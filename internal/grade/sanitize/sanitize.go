// Package sanitize plays traces on a second build of a submission, -O0 with
// AddressSanitizer and UndefinedBehaviorSanitizer, and says at which line the
// first complaint arises. It sees what Memcheck cannot: accesses outside of
// arrays on the stack and static ones, and arithmetic that C does not define.
package sanitize

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"llmmemory/internal/course/trace"
	"llmmemory/internal/grade/sandbox"
	"llmmemory/internal/grade/supervise"
)

// A Finding is the first complaint, which ends the program.
type Finding struct {
	What     string
	Function string // the call of the six that was running, or "" where none was
	Line     int    // of llm_memory.c; 0: unknown
}

// String is the finding as a student reads it.
func (f Finding) String() string { return supervise.At(f.Line, f.What) }

// ErrUnfinished is wrapped when the program ended before its time without a word
// of the sanitizers.
var ErrUnfinished = errors.New("did not finish with the sanitizers")

const (
	mostReport = 1 << 20 // comes last, after whatever the submission has written
	stopped    = 86      // the exit status of the sanitizers
)

// Run plays the traces on a program that is linked with grader/process/watched.c and the
// sanitizers. A nil Finding means that there is none.
func Run(program string, steps supervise.Steps) (*Finding, error) {
	steps.Defined = true
	file, err := steps.File(filepath.Dir(program))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	said, exit, err := run(program, file)
	if err != nil {
		return nil, err
	}
	all, err := supervise.PlayedAll(file)
	switch {
	case err != nil:
		return nil, fmt.Errorf("sanitizers: %w", err)
	case exit == stopped:
		f := parse(said)
		return &f, nil
	case exit < 0:
		return nil, fmt.Errorf("%w: it was ended in the middle of a call", ErrUnfinished)
	case exit != 0 || !all:
		return nil, fmt.Errorf("%w: it ended in the middle of a call, with exit status %d", ErrUnfinished, exit)
	}
	return nil, nil
}

// run is what the program writes to its standard error, and its exit status.
func run(program string, steps *os.File) (said []byte, exit int, err error) {
	path, argv, err := sandbox.Box{Read: []string{program}}.Command(program, "3") // shadow memory needs any address space
	if err != nil {
		return nil, 0, err
	}
	options := fmt.Sprintf("exitcode=%d:print_stacktrace=1:detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=256:hard_rss_limit_mb=1024", stopped)
	cmd := &exec.Cmd{Path: path, Args: argv, Env: []string{"LC_ALL=C", "ASAN_OPTIONS=" + options, "UBSAN_OPTIONS=" + options}}
	cmd.ExtraFiles = []*os.File{steps}
	end, err := supervise.Run(cmd, func(pipe *os.File) { cmd.Stderr = pipe }, supervise.Patience, supervise.Tail(mostReport))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("sanitizers: %w: %s", err, end.Said)
	case end.Over != nil:
		return nil, 0, fmt.Errorf("%w: %w", ErrUnfinished, end.Over)
	}
	return end.Said, end.Exit, nil
}

var (
	complaint = regexp.MustCompile(`(?m)^(?:.*?: (runtime error: .+)|==\d+==ERROR: AddressSanitizer: (\S+).*)$`)
	frame     = regexp.MustCompile(`(?m)^ *#\d+ 0x[0-9a-f]+ in (\w+) (?:.*/)?llm_memory\.c:(\d+)`)
)

// parse reads the first complaint and the stack below it.
func parse(text []byte) Finding {
	f := Finding{What: "the sanitizers stopped it"}
	at := complaint.FindSubmatchIndex(text)
	if at == nil {
		return f
	}
	m := complaint.FindSubmatch(text)
	f.What = string(m[1]) + string(m[2])
	stack, _, _ := bytes.Cut(text[at[1]:], []byte("\n\n"))
	for _, m := range frame.FindAllSubmatch(stack, -1) {
		if f.Line == 0 {
			f.Line, _ = strconv.Atoi(string(m[2]))
		}
		if trace.TaskOf(string(m[1])) != 0 {
			f.Function = string(m[1])
		}
	}
	return f
}
