// Package supervise runs a program on a file of steps, under Memcheck or with the
// sanitizers, and collects what they report. Packages memcheck and sanitize interpret it.
package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"llmmemory/internal/grade/limitedbuffer"
	"llmmemory/internal/grade/sandbox"
)

// An End is how a program ended.
type End struct {
	Said   []byte // what is kept of what it wrote into the pipe
	Late   bool   // the pipe was still open when patience was over
	Exit   int    // status; -1: by a signal
	Signal syscall.Signal
	CPU    time.Duration // processor time
}

// Patience is how long a program may take by the clock: many times its limit of
// processor time (grader/process/launch.c), so that it is over only where the
// machine is too busy, or where the program waits for nothing.
const Patience = 5 * time.Minute

// ErrStarved is wrapped where the machine was too busy to say anything.
var ErrStarved = errors.New("the machine is too busy")

// Starved reports whether patience was over though the program did what it could:
// it had some processor time, and less than its limit.
func (e End) Starved() bool { return e.Late && e.CPU > time.Second }

// A Keep reads what a program writes, and returns what is kept of it.
type Keep func(io.Reader) ([]byte, error)

// Head keeps the first bytes. A program that writes more is ended.
func Head(most int64) Keep {
	return func(from io.Reader) ([]byte, error) { return io.ReadAll(io.LimitReader(from, most)) }
}

// Tail keeps the last bytes, of however many.
func Tail(most int) Keep {
	return func(from io.Reader) ([]byte, error) {
		last := limitedbuffer.Tail{Most: most}
		_, err := io.Copy(&last, from)
		return last.Bytes(), err
	}
}

// Run starts a program, whose arguments are a sandbox's, in a process group of its
// own, with a pipe that attach gives it, and waits until all that have the pipe
// have closed it, or patience is over, or keep reads no more. Who is left a second
// later is killed. The error is that it could not be run; the End holds as far as
// it came.
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
	_ = ours.SetReadDeadline(time.Now().Add(patience))
	var readErr error
	e.Said, readErr = keep(ours)
	stop := time.AfterFunc(time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	waitErr := cmd.Wait()
	stop.Stop()
	e.Late = readErr != nil
	e.Exit = cmd.ProcessState.ExitCode()
	e.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.Signal = status.Signal()
	}
	if exit := (*exec.ExitError)(nil); waitErr != nil && !errors.As(waitErr, &exit) || e.Exit == sandbox.Failed {
		return e, waitErr
	}
	return e, nil
}

// PlayedAll says whether the whole file of steps was read. The program has the
// file open as ours is, so the offset is its.
func PlayedAll(steps *os.File) (bool, error) {
	played, err := steps.Seek(0, io.SeekCurrent)
	if err != nil {
		return false, err
	}
	info, err := steps.Stat()
	if err != nil {
		return false, err
	}
	return played == info.Size(), nil
}

// At is a complaint as a student reads it; line is of llm_memory.c, 0: none.
func At(line int, what string) string {
	if line == 0 {
		return what
	}
	return fmt.Sprintf("llm_memory.c:%d: %s", line, what)
}
