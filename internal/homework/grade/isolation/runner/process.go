// Package runner runs a submission in a process of its own. It lets the process execute one call at a time
// (grader/process/runner.c), and reads and writes the submission's memory in a file that both processes map
// (internal/README.md, decision 4).
//
// It trusts nothing that comes from the process, and only accesses addresses inside the file.
package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"llmmemory/internal/homework/grade/isolation/cputime"
	"llmmemory/internal/homework/grade/isolation/sandbox"
)

// A Call is what the process must do: one of the six functions of the homework, or a service for the grader.
type Call uint32

// The calls, in the order of enum call of grader/process/runner.c.
const (
	Init Call = iota
	Create
	Fork
	Append
	Free
	Destroy
	Forks    // Size of them, to the ids B, B + 1, ...
	Creates  // Size of them, with the ids A, A + 1, ...
	Appends  // Size of them, of the records B, B + 1, ...
	Frees    // Size of them, of the ids A, A + 1, ...
	Open     // the pool at Engine, of Size bytes, may be used
	Allocate // A chunks of Size bytes
	GiveBack // the Size chunks with the addresses of the events
	alias    // see Process.Alias
)

// ReadOnly is added to a Call that must not write to a pool. A write to a pool then ends the process.
const ReadOnly Call = 256

// A Request is struct request of grader/process/runner.c.
type Request struct {
	Call   Call
	A, B   int32
	Fail   uint32 // the allocation of this call that fails, from 1; 0: none
	Engine uint64 // or the pool
	Size   uint64 // of the pool or a chunk, or how many calls or addresses
}

// An Event is an allocation or a release that a call made: struct event.
type Event struct {
	What uint64
	At   uint64
	Size uint64
}

// The values of Event.What: enum what.
const (
	Malloc     uint64 = iota + 1
	Calloc            //
	Realloc           //
	Release           //
	Refused           // an allocation that failed, as requested or because no memory is left
	BadRelease        // of an address that is no live chunk; Size is 1 if it was one before
)

// A Reply is the result of a call. Its events are in memory that the process can change, and valid until the next
// call.
type Reply struct {
	Returned int64
	Events   []Event
}

var (
	// ErrStart means that the program is too big for the address space allowed by sandbox.Command.
	ErrStart = errors.New("the program does not start: it is too big")

	// ErrKilled means that the kernel killed the process (SIGKILL), as it does if memory is short. A submission
	// cannot send itself SIGKILL.
	ErrKilled = errors.New("the system ended the process: is there too little memory?")

	// ErrAlias means that the process has no free address range for the end of a large pool.
	ErrAlias = errors.New("the end of a large pool cannot be mapped")

	// ErrDied means that the process ended during a call, by a signal or by exiting.
	ErrDied = errors.New("the process ended")
)

// Patience limits the processor time of a process (cputime.Meter).
type Patience struct {
	Call    time.Duration // of one call
	Process time.Duration // in all
}

// A Process runs a submission.
type Process struct {
	*memory
	pipes
	cmd      *exec.Cmd
	patience Patience
	said     sandbox.Tail // of its standard error
	meter    *cputime.Meter
}

const maxSaid = 2 << 10 // bytes of its standard error

// Start runs a program, a submission linked with the runner, in the sandbox. It discards the standard output and keeps
// the end of the standard error.
func Start(program string, patience Patience) (*Process, error) {
	m, err := newMemory()
	if err != nil {
		return nil, err
	}
	p := &Process{memory: m, patience: patience, said: sandbox.Tail{Max: maxSaid}}
	if err := p.start(program); err != nil {
		m.close()
		return nil, fmt.Errorf("start the submission: %w", err)
	}
	// The process replies to this request before any code of the submission runs, so only later failures are the
	// submission's.
	if _, err := p.Do(Request{Call: GiveBack}); err != nil {
		p.Close()
		if errors.Is(err, ErrDied) && p.cmd.ProcessState.ExitCode() == -1 { // by a signal: the runner itself causes none
			return nil, fmt.Errorf("%w (%w)", ErrStart, err)
		}
		return nil, fmt.Errorf("start the submission: %w; it said: %s", err, p.Said())
	}
	return p, nil
}

func (p *Process) start(program string) error {
	path, argv, err := sandbox.Command(program, "3", "4", "5")
	if err != nil {
		return err
	}
	ours, requests, replies, err := newPipes()
	if err != nil {
		return err
	}
	defer requests.Close()
	defer replies.Close()
	p.pipes = ours
	p.cmd = &exec.Cmd{Path: path, Args: argv, Env: []string{}}
	p.cmd.Stderr, p.cmd.WaitDelay = &p.said, 10*time.Second
	p.cmd.ExtraFiles = []*os.File{p.file, requests, replies}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.pipes.close()
		return err
	}
	p.meter = cputime.NewMeter(p.cmd.Process.Pid, p.patience.Process)
	return nil
}

// Close ends the process and those that it started.
func (p *Process) Close() {
	p.end()
	p.pipes.close()
	p.memory.close()
}

// Said ends the process and returns the end of its standard error, with paths of llm_memory.c shortened to the file
// name.
func (p *Process) Said() string {
	p.end()
	return strings.TrimSpace(sourcePath.ReplaceAllString(sandbox.Printable(p.said.Bytes()), "$1"))
}

var sourcePath = regexp.MustCompile(`[^ "'(]*/(llm_memory\.c)`)

func (p *Process) end() {
	if p.cmd.ProcessState == nil {
		p.kill()
		_ = p.cmd.Wait()
	}
}

func (p *Process) kill() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// Do makes one call. After an error the process is gone.
func (p *Process) Do(r Request) (Reply, error) {
	p.meter.Begin(p.patience.Call)
	request := unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))
	if _, err := p.transfer(request, len(request), p.write); err != nil {
		return Reply{}, err
	}
	var text [2 * replySize]byte
	n, err := p.transfer(text[:], replySize, p.read)
	if err != nil {
		return Reply{}, err
	}
	if n > replySize { // only one reply was requested
		p.end()
		return Reply{}, fmt.Errorf("%w: it writes to the pipe that carries the answers to the grader (write)", ErrAttack)
	}
	returned, events := int64(binary.NativeEndian.Uint64(text[:])), binary.NativeEndian.Uint64(text[8:])
	if returned == attackCall {
		return Reply{}, p.attacked(events)
	}
	if err := p.meter.End(); err != nil {
		p.end()
		return Reply{}, err
	}
	return Reply{Returned: returned, Events: p.events(events)}, nil
}

const replySize = 16 // of struct reply: what the call returned, and the number of events

// GiveBack frees chunks of the process's heap.
func (p *Process) GiveBack(addresses []uint64) error {
	for len(addresses) > 0 {
		n := min(len(addresses), maxEvents)
		events := p.events(uint64(n))
		for i := range events {
			events[i].At = addresses[i]
		}
		if _, err := p.Do(Request{Call: GiveBack, Size: uint64(n)}); err != nil {
			return err
		}
		addresses = addresses[n:]
	}
	return nil
}

// Alias maps size bytes of the pools' region a second time, as the end of a large pool. src is their address in the
// region, and dst is the second address. The error wraps ErrAlias if the system refuses.
func (p *Process) Alias(src, dst, size uint64) error {
	r, err := p.Do(Request{Call: alias, Engine: src, A: int32(uint32(dst)), B: int32(uint32(dst >> 32)), Size: size})
	if err == nil && r.Returned != 1 {
		err = ErrAlias
	}
	if err == nil {
		p.aliasFrom, p.aliasTo, p.aliasSize = src, dst, size
	}
	return err
}

// transfer calls move, which is write or read, until it has moved at least minimum bytes. Whenever move times out,
// transfer checks the limits of the process.
func (p *Process) transfer(bytes []byte, minimum int, move func([]byte, time.Time) (int, error)) (done int, err error) {
	for done < minimum {
		n, err := move(bytes[done:], time.Now().Add(cputime.LookEvery))
		done += n
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := p.meter.Look(); err != nil {
				p.end()
				return done, err
			}
		case err != nil:
			return done, p.cause(err)
		}
	}
	return done, nil
}

// Slow returns an error that wraps cputime.ErrSlow if all calls of the process together were too slow to be judged, and
// one that wraps cputime.ErrTime if they have reached the limit.
func (p *Process) Slow() error { return p.meter.Close() }

// cause ends the process and returns the error to report for err, the error of a read or write of a pipe. If err means
// that the process has closed its end of the pipe, cause waits until the process ends or reaches its limit. The
// returned error then says how the process ended. Any other err is wrapped, and the process is ended at once.
func (p *Process) cause(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.EPIPE) {
		p.end()
		return fmt.Errorf("talk to the submission: %w", err)
	}
	if err := p.wait(); err != nil {
		return fmt.Errorf("%w, after it closed its pipe", err)
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		if status.Signal() == syscall.SIGSYS {
			return fmt.Errorf("%w: a system call that the sandbox does not let pass", ErrAttack)
		}
		if status.Signal() == syscall.SIGKILL {
			p.memory.empty()
			return ErrKilled
		}
		return fmt.Errorf("%w by %v", ErrDied, status.Signal())
	}
	return fmt.Errorf("%w with exit status %d", ErrDied, p.cmd.ProcessState.ExitCode())
}

// wait waits for the end of a process. A process that has closed its pipes may go on running, so wait kills it at its
// limit.
func (p *Process) wait() error {
	gone := make(chan struct{})
	go func() {
		_ = p.cmd.Wait()
		close(gone)
	}()
	for {
		select {
		case <-gone:
			return nil
		case <-time.After(cputime.LookEvery):
		}
		if err := p.meter.Look(); err != nil {
			p.kill()
			<-gone
			return err
		}
	}
}
