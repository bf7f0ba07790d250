// Package supervise runs a program with limits and returns its output. It plays traces on a submission under Valgrind's
// Memcheck, and on a second build with AddressSanitizer and UndefinedBehaviorSanitizer. It returns their complaints with
// the lines of the submission. The sanitizers find what Memcheck cannot: accesses outside arrays on the stack and static
// arrays, and arithmetic that C does not define. Package rules uses Run to parse a source.
package supervise

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"llmmemory/internal/homework/grade/isolation/cputime"
	"llmmemory/internal/homework/grade/isolation/sandbox"
)

// An End is how a program ended.
type End struct {
	Said   []byte // what was kept of its output
	Over   error  // wraps cputime.ErrTime if its time was over
	Exit   int    // status; -1: by a signal
	Signal syscall.Signal
}

// maxTime is the limit of processor time for a program that plays all traces (cputime.Meter).
const maxTime = 10 * time.Second

// ErrKilled means that the kernel killed the program, as it does when memory is short.
var ErrKilled = errors.New("the system ended the program: is there too little memory?")

// A Keep reads the output of a program and returns the part that becomes End.Said.
type Keep func(io.Reader) ([]byte, error)

// Head returns a Keep that keeps the beginning of the output, up to a limit in bytes. Run ends a program that writes
// more.
func Head(limit int64) Keep {
	return func(r io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(r, limit)) }
}

// tail returns a Keep that keeps the last bytes.
func tail(limit int) Keep {
	return func(r io.Reader) ([]byte, error) {
		last := sandbox.Tail{Max: limit}
		_, err := io.Copy(&last, r)
		return last.Bytes(), err
	}
}

// Run runs a program in its own process group. attach must connect the pipe for the program's output to cmd. Run ends
// the program if it uses more processor time than patience or writes more than keep reads. An error means that the
// program could not be run or judged.
func Run(cmd *exec.Cmd, attach func(pipe *os.File), patience time.Duration, keep Keep) (e End, err error) {
	ours, theirs, err := os.Pipe()
	if err != nil {
		return e, err
	}
	defer ours.Close()
	attach(theirs)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	err = cmd.Start()
	_ = theirs.Close()
	if err != nil {
		return e, err
	}
	watch := cputime.Start(cmd.Process.Pid, patience, func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = ours.SetReadDeadline(time.Now()) // somebody else may have the pipe
	})
	e.Said, _ = keep(ours)
	if n, _ := ours.Read(make([]byte, 1)); n > 0 {
		watch.Kill()
	}
	waitErr := cmd.Wait()
	killed, verdict := watch.Stop(cmd.ProcessState)
	e.Exit = cmd.ProcessState.ExitCode()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = status.Signal()
	}
	switch exit := (*exec.ExitError)(nil); {
	case errors.Is(verdict, cputime.ErrTime):
		e.Over = verdict
	case verdict != nil && e.Signal == 0: // a program that a signal ended has not finished, however slow it was
		return e, verdict
	case killed && verdict != nil:
		return e, verdict
	case e.Signal == syscall.SIGKILL && !killed:
		return e, ErrKilled
	case waitErr != nil && !errors.As(waitErr, &exit) || e.Exit == sandbox.Failed:
		return e, waitErr
	}
	return e, nil
}
