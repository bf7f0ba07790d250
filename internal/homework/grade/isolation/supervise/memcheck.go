package supervise

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"llmmemory/internal/homework/grade/isolation/cputime"
	"llmmemory/internal/homework/grade/isolation/sandbox"
)

// A Stuck is the error for a submission that used up its time in a call of Function. It wraps ErrUnfinished.
type Stuck struct {
	Function string
	err      error
}

func (s *Stuck) Error() string { return s.Function + " " + s.err.Error() }
func (s *Stuck) Unwrap() error { return s.err }

const (
	memory     = 640 << 20 // bytes of address space of Valgrind with the submission
	maxReport  = 8 << 20   // bytes: more than 1000 complaints take, after which Valgrind reports no more
	complained = 99        // Valgrind's exit status if there are complaints
)

// Memcheck plays the traces, each on new engines, on a program that is linked with grader/process/watched.c. It
// returns one finding for each kind of complaint, line and function. A use of an uninitialised value counts for the
// function that allocated the memory. To find this function, Memcheck plays the traces again with --track-origins,
// which takes longer.
func Memcheck(program string, steps Steps) ([]Finding, error) {
	file, err := steps.file(filepath.Dir(program))
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
	found, err := played(program, box, file)
	if errors.Is(err, ErrUnfinished) {
		ops, untilErr := steps.prefix(file)
		if untilErr != nil {
			return nil, untilErr
		}
		for i := range found {
			found[i].blameLastCall(ops)
		}
	}
	if slices.ContainsFunc(found, func(f Finding) bool { return strings.HasPrefix(f.Kind, "Uninit") }) {
		if _, seekErr := file.Seek(0, io.SeekStart); seekErr != nil {
			return nil, seekErr
		}
		if origins, err := played(program, box, file, "--track-origins=yes"); err == nil {
			return causes(origins), nil
		}
	}
	return causes(found), err
}

// causes removes findings that may be consequences of other findings. If the submission made a wrong access, leaks
// and complaints about the grader's own code may be its consequences.
func causes(found []Finding) []Finding {
	cause := func(f Finding) bool { return f.Function != "" && !f.Leak() }
	if !slices.ContainsFunc(found, cause) {
		return found
	}
	return slices.DeleteFunc(found, func(f Finding) bool { return !cause(f) })
}

func played(program, box string, file *os.File, flags ...string) ([]Finding, error) {
	report, exit, err := runValgrind(program, box, file, flags...)
	if err != nil && !errors.Is(err, ErrUnfinished) {
		return nil, err
	}
	if function := last(file); errors.Is(err, cputime.ErrTime) && function != "" {
		err = &Stuck{function, err}
	}
	found, parseErr := parseXML(report)
	if err == nil {
		err = agree(found, parseErr, exit, file)
	}
	return found, err
}

// agree returns an error unless Memcheck has watched the whole run. The submission could write to the report or end the
// run at any time. But if Memcheck has complaints, Valgrind's exit status is the constant complained, whatever the
// submission does. So the report and the exit status must agree. agree finds out from the offset in the file steps
// whether all steps were played.
func agree(found []Finding, parseErr error, exit int, steps *os.File) error {
	if parseErr != nil {
		return valgrind.unfinished("%w", parseErr)
	}
	if exit != 0 && exit != complained {
		return valgrind.unfinished("it ended with exit status %d", exit)
	}
	if err := valgrind.playedAll(steps, ""); err != nil {
		return err
	}
	if (exit == complained) != (len(found) > 0) {
		return valgrind.unfinished("the report has %d complaints, but Valgrind's exit status is %d", len(found), exit)
	}
	return nil
}

// runValgrind returns Valgrind's report and exit status. The report goes through a pipe, so that the submission cannot
// change what Valgrind has written.
func runValgrind(program, box string, steps *os.File, flags ...string) (report []byte, exit int, err error) {
	// In some distributions, valgrind is a script, and the sandbox has no shell to run it.
	binary, err := exec.LookPath("valgrind.bin")
	if err != nil {
		if binary, err = exec.LookPath("valgrind"); err != nil {
			return nil, 0, fmt.Errorf("memcheck: %w", err)
		}
	}
	libraries, err := filepath.Glob(filepath.Join(filepath.Dir(program), "..", "lib?.so.6")) // its own C library: package build
	if err != nil {
		return nil, 0, err
	}
	allowed := sandbox.Box{Folder: box, Read: append(libraries, program), Memory: memory}
	flags = append(flags, "--xml=yes", "--xml-fd=4", "--child-silent-after-fork=yes", "--vgdb=no",
		"--read-inline-info=no", // makes its start faster; Memcheck reports the line of an inlined function nevertheless
		"--leak-check=full", "--show-leak-kinds=all", "--errors-for-leak-kinds=all",
		"--error-exitcode="+strconv.Itoa(complained), program, "3")
	path, argv, err := allowed.Command(binary, flags...)
	if err != nil {
		return nil, 0, err
	}
	cmd := &exec.Cmd{Path: path, Args: argv, Dir: box, Env: []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TMPDIR=" + box}}
	end, err := Run(cmd, func(pipe *os.File) { cmd.ExtraFiles = []*os.File{steps, pipe} }, maxTime, Head(maxReport))
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("memcheck: %w", err)
	case end.Over != nil:
		return end.Said, 0, valgrind.unfinished("%w", end.Over)
	case end.Signal != 0:
		return end.Said, 0, valgrind.unfinished("it ended by %v", end.Signal)
	}
	return end.Said, end.Exit, nil
}

// parseXML returns the findings in Valgrind's XML report (protocol 4). The report must be one element that ends with
// the state FINISHED, and nothing may follow it.
func parseXML(text []byte) ([]Finding, error) {
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
		if strings.HasPrefix(f.Kind, "Uninit") && len(e.Stack) > 1 {
			f.blameAllocator(place(e.Stack[1].Frames))
		}
		if !slices.ContainsFunc(found, func(o Finding) bool { return o.Kind == f.Kind && o.Line == f.Line && o.Function == f.Function }) {
			found = append(found, f)
		}
	}
	return found, err
}

// blameAllocator changes a finding about the use of an uninitialised value. If another homework function allocated the
// memory, the finding is then about that function, and its text names the line of the allocation.
func (f *Finding) blameAllocator(function string, line int) {
	if function != "" && function != f.Function {
		f.What += fmt.Sprintf(" (%s allocates the memory in line %d and does not set it)", function, line)
		f.Function = function
	}
}
