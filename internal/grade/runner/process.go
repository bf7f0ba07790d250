package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
	"unsafe"

	"llmmemory/internal/grade/limitedbuffer"
	"llmmemory/internal/grade/sandbox"
)

// A Call is one of the six, or an allocation that the grader wants for itself.
type Call uint32

// In the order of enum call of grader/process/runner.c.
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
	GiveBack // the Size chunks whose addresses lie where events do
	alias    // see Process.Alias
)

// ReadOnly is added to a Call that must not write a pool: one that does dies.
const ReadOnly Call = 256

// A Request is struct request of grader/process/runner.c.
type Request struct {
	Call   Call
	A, B   int32
	Fail   uint32 // the allocation of this call that fails, from 1; 0: none
	Engine uint64 // or the pool
	Size   uint64 // of the pool, or how many forks
}

// An Event is one allocation or release that a call made: struct event.
type Event struct {
	What uint64
	At   uint64
	Size uint64
}

// What an Event can be: enum what.
const (
	Malloc     uint64 = iota + 1
	Calloc            //
	Realloc           //
	Release           //
	Refused           // an allocation that failed, as it was told to or because nothing is left
	BadRelease        // of an address that is no live chunk; Size 1: it was one once
)

// A Reply is what a call returned and did to the heap. The events lie where the
// process can write, and hold until the next call.
type Reply struct {
	Returned int64
	Events   []Event
}

// ErrTime is wrapped when a call takes longer than it may.
var ErrTime = errors.New("it does not come back")

// ErrStart is wrapped when the system cannot start the program, which is then too
// big for the address space that sandbox.Command gives.
var ErrStart = errors.New("the program does not start: it is too big")

// ErrStarved is wrapped when the machine gives the process too little of its
// processors to say anything of it.
var ErrStarved = errors.New("the machine is too busy")

// Patience is how much processor time a process may take: no measure of speed, but
// a bound. How long that takes by the clock is the machine's doing.
type Patience struct {
	Call    time.Duration // for one call
	Process time.Duration // for all calls together, and what lies between them
}

// By the clock: how often a call that does not come back is looked at, how long
// it may wait for something without any processor time, and how long it may take
// at all.
const (
	lookEvery = time.Second
	mostIdle  = 10 * time.Second
	mostClock = 3 * time.Minute
)

// ErrAlias is wrapped when there is no address space for the end of a large pool.
var ErrAlias = errors.New("the end of a large pool cannot be mapped")

// ErrDied is wrapped when the process ends during a call, by a signal or not.
var ErrDied = errors.New("the process ended")

// A Process runs a submission.
type Process struct {
	*memory
	pipes
	cmd      *exec.Cmd
	patience Patience
	said     limitedbuffer.Tail // of its standard error
	look     time.Time          // when the processor time of all calls is looked at next
}

// mostSaid is what is kept of the end of its standard error.
const mostSaid = 2 << 10

// Start runs a linked runner, shut in (package sandbox). Its standard output goes
// nowhere, and of its standard error the end is kept.
func Start(program string, patience Patience) (*Process, error) {
	m, err := newMemory()
	if err != nil {
		return nil, err
	}
	p := &Process{memory: m, patience: patience, said: limitedbuffer.Tail{Most: mostSaid}, look: time.Now().Add(patience.Process)}
	if err := p.start(program); err != nil {
		m.close()
		return nil, fmt.Errorf("start the submission: %w", err)
	}
	// Before any code of the submission's runs: from here on, trouble is its own.
	if _, err := p.Do(Request{Call: GiveBack}); err != nil {
		p.Close()
		if errors.Is(err, ErrDied) && p.cmd.ProcessState.ExitCode() == -1 { // by a signal, of which ours has none
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
	p.cmd.Stderr, p.cmd.WaitDelay = &p.said, time.Second
	p.cmd.ExtraFiles = []*os.File{p.file, requests, replies}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		p.pipes.close()
		return err
	}
	return nil
}

// Close ends the process and everything it started.
func (p *Process) Close() {
	p.end()
	p.pipes.close()
	p.memory.close()
}

// Said ends the process, and is the end of what it wrote to its standard error.
func (p *Process) Said() string {
	p.end()
	return readable(p.said.Bytes())
}

var sourcePath = regexp.MustCompile(`[^ "'(]*/(llm_memory\.c)`)

// readable takes out what a terminal would obey, and the folder of the submission.
func readable(said []byte) string {
	text := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r < ' ' && r != '\t' && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, string(said))
	return strings.TrimSpace(sourcePath.ReplaceAllString(text, "$1"))
}

func (p *Process) end() {
	if p.cmd.ProcessState == nil {
		p.kill()
		_ = p.cmd.Wait()
	}
}

func (p *Process) kill() { _ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) }

// Do makes one call. After an error the process is gone.
func (p *Process) Do(r Request) (Reply, error) {
	w := waiting{begin: time.Now()}
	request := unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))
	if _, err := p.transfer(&w, request, len(request), p.write); err != nil {
		return Reply{}, err
	}
	var text [2 * replySize]byte
	n, err := p.transfer(&w, text[:], replySize, p.read)
	if err != nil {
		return Reply{}, err
	}
	if n > replySize { // it was asked once
		p.end()
		return Reply{}, fmt.Errorf("%w: it writes to the pipe that carries the answers to the grader (write)", ErrAttack)
	}
	returned, events := int64(binary.NativeEndian.Uint64(text[:])), binary.NativeEndian.Uint64(text[8:])
	if returned == attackCall {
		return Reply{}, p.attacked(events)
	}
	return Reply{Returned: returned, Events: p.events(events)}, nil
}

// replySize is the size of struct reply of grader/process/runner.c: what the call
// returned, and how many events there are.
const replySize = 16

// GiveBack frees chunks of the process's heap.
func (p *Process) GiveBack(addresses []uint64) error {
	for len(addresses) > 0 {
		n := min(len(addresses), mostEvents)
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

// Alias maps size bytes of the pools once more at another address, where the end of
// a large pool is. The error wraps ErrAlias where the system refuses.
func (p *Process) Alias(from, to, size uint64) error {
	r, err := p.Do(Request{Call: alias, Engine: from, A: int32(uint32(to)), B: int32(uint32(to >> 32)), Size: size})
	if err == nil && r.Returned != 1 {
		err = ErrAlias
	}
	if err == nil {
		p.aliasFrom, p.aliasTo, p.aliasSize = from, to, size
	}
	return err
}

// waiting is for one call.
type waiting struct {
	begin, moved time.Time     // moved: when it last used the processor
	before, last time.Duration // processor time
	looked       bool
}

// transfer moves the least number of bytes or more, and looks at the processor time
// whenever it has waited.
func (p *Process) transfer(w *waiting, bytes []byte, least int, move func([]byte, time.Time) (int, error)) (done int, err error) {
	for done < least {
		until := time.Now().Add(lookEvery)
		if p.look.Before(until) {
			until = p.look
		}
		n, err := move(bytes[done:], until)
		done += n
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := p.exceeded(w); err != nil {
				p.end()
				return done, err
			}
		case err != nil:
			return done, p.why(err)
		}
	}
	return done, nil
}

// exceeded says whether a call or the process has had its time.
func (p *Process) exceeded(w *waiting) error {
	used, now := p.used(), time.Now()
	if !w.looked || used > w.last {
		w.moved = now
	}
	if !w.looked {
		w.before, w.looked = max(0, used-now.Sub(w.begin)), true
	}
	w.last = used
	p.look = now.Add(lookEvery)
	switch {
	case used >= p.patience.Process:
		return fmt.Errorf("%w: all calls together took %v of processor time, limit %v", ErrTime, used.Round(100*time.Millisecond), p.patience.Process)
	case used-w.before >= p.patience.Call:
		return fmt.Errorf("%w: it took %v of processor time, limit %v", ErrTime, (used - w.before).Round(100*time.Millisecond), p.patience.Call.Round(100*time.Millisecond))
	case now.Sub(w.moved) >= mostIdle:
		return fmt.Errorf("%w: it has waited for %v without doing anything", ErrTime, mostIdle)
	case now.Sub(w.begin) >= mostClock:
		return fmt.Errorf("%w: a call had %v of processor time in %v", ErrStarved, (used - w.before).Round(time.Millisecond), mostClock)
	}
	return nil
}

// used is the processor time of the process, as the kernel counts it: in ticks.
func (p *Process) used() time.Duration {
	const tick = 10 * time.Millisecond
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick
}

// why says how the process came to its end, and ends it if it has not.
func (p *Process) why(err error) error {
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.EPIPE) {
		p.end()
		return fmt.Errorf("talk to the submission: %w", err)
	}
	// It may have closed the pipe and go on.
	stop := time.AfterFunc(mostIdle, p.kill)
	_ = p.cmd.Wait()
	if !stop.Stop() {
		return fmt.Errorf("%w within %v after it closed its pipe", ErrTime, mostIdle)
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		if status.Signal() == syscall.SIGSYS {
			return fmt.Errorf("%w: a system call that the sandbox does not let pass", ErrAttack)
		}
		if status.Signal() == syscall.SIGKILL {
			p.memory.empty()
		}
		return fmt.Errorf("%w by %v", ErrDied, status.Signal())
	}
	return fmt.Errorf("%w with exit status %d", ErrDied, p.cmd.ProcessState.ExitCode())
}

// At views size bytes at an address of the process; nil if any of them lies
// outside the pools and the heap.
func (p *Process) At(address, size uint64) []byte { return p.at(address, size) }
