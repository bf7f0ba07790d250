package supervise

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/isolation/sandbox"
)

const (
	maxSaid = 1 << 20 // comes last, after whatever the submission has written
	stopped = 86      // the exit status of the sanitizers
)

// Sanitizers plays the traces on a program that is linked with grader/process/watched.c and the sanitizers. The first
// error found by a sanitizer ends the program. f is this error, or nil if there was none. ops are the steps of the
// trace that the program was then playing, up to the one that caused the error.
func Sanitizers(program string, steps Steps) (f *Finding, ops []trace.Op, err error) {
	steps.Defined = true
	file, err := steps.file(filepath.Dir(program))
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	said, exit, err := runSanitized(program, file)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case exit == stopped:
		f := parseComplaint(said)
		ops, err := steps.prefix(file)
		f.blameLastCall(ops)
		return &f, ops, err
	case exit < 0:
		return nil, nil, sanitizers.unfinished("it was ended in the middle of a call")
	case exit != 0:
		return nil, nil, sanitizers.unfinished("it ended in the middle of a call, with exit status %d", exit)
	}
	return nil, nil, sanitizers.playedAll(file, ", with exit status 0")
}

func runSanitized(program string, steps *os.File) (said []byte, exit int, err error) {
	path, argv, err := sandbox.Box{Read: []string{program}}.Command(program, "3") // shadow memory needs any address space
	if err != nil {
		return nil, 0, err
	}
	options := fmt.Sprintf("exitcode=%d:print_stacktrace=1:detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=256:hard_rss_limit_mb=1024", stopped)
	cmd := &exec.Cmd{Path: path, Args: argv, Env: []string{"LC_ALL=C", "ASAN_OPTIONS=" + options, "UBSAN_OPTIONS=" + options}}
	cmd.ExtraFiles = []*os.File{steps}
	end, err := Run(cmd, func(pipe *os.File) { cmd.Stderr = pipe }, maxTime, tail(maxSaid))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("sanitizers: %w: %s", err, end.Said)
	case end.Over != nil:
		return nil, 0, sanitizers.unfinished("%w", end.Over)
	}
	return end.Said, end.Exit, nil
}

var (
	complaint = regexp.MustCompile(`(?m)^(?:.*?: (runtime error: .+)|==\d+==ERROR: AddressSanitizer: (\S+).*)$`)
	stackLine = regexp.MustCompile(`(?m)^ *#\d+ 0x[0-9a-f]+ in (\w+) (?:.*/)?(llm_memory\.c):(\d+)`)
)

func parseComplaint(text []byte) Finding {
	match := complaint.FindSubmatchIndex(text)
	if match == nil {
		return Finding{What: "the sanitizers stopped it"}
	}
	m := complaint.FindSubmatch(text)
	stack, _, _ := bytes.Cut(text[match[1]:], []byte("\n\n"))
	var frames []frame
	for _, m := range stackLine.FindAllSubmatch(stack, -1) {
		line, _ := strconv.Atoi(string(m[3]))
		frames = append(frames, frame{string(m[1]), string(m[2]), line})
	}
	f := Finding{What: string(m[1]) + string(m[2])}
	f.Function, f.Line = place(frames)
	return f
}
