package parallel

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A placement moves the thread that calls Run. If a worker that was woken after a long sleep does not begin, its thread
// probably waits on the same processor. The calling thread then moves to another processor.
//
// In a virtual machine, the host takes back an idle processor, and Linux then does not consider the processor idle
// (vcpu_is_preempted). If a thread wakes after a long sleep, Linux therefore often places it on the processor of its
// waker. The woken thread waits there, and Linux may take 10 ms to move one of the two.
type placement struct {
	moves   int       // moves that are still allowed; woke sets it after a long sleep
	missing time.Time // when a Run first lacked a worker; zero if the last Run had all workers or moves was 0
	moved   time.Time
}

const (
	longSleep    = 2 * time.Millisecond
	missingFor   = 100 * time.Microsecond // waking takes 20 to 100 µs
	betweenMoves = time.Millisecond
	maxMoves     = 3 // another program may occupy all processors; a move then gains nothing and takes up to 100 µs
)

// woke must be called when a worker is woken. The parameter slept is the time when the worker fell asleep. If the
// worker slept for at least longSleep, the calling thread may then be moved maxMoves times. The method check moves
// it.
func (p *placement) woke(slept time.Time) {
	if time.Since(slept) >= longSleep {
		p.moves, p.missing = maxMoves, time.Time{}
	}
}

// check is called at the end of each Run that has called workers, unless the threads are another program's. The
// parameter workerMissing is true if Run has called a worker, but other workers had taken all tasks before this worker
// began. If workerMissing was true in all Runs for at least missingFor, check moves the calling thread to another
// processor, at most once in betweenMoves. It moves the thread only after a worker was woken from a long sleep, and at
// most maxMoves times until the next such sleep ends.
func (p *placement) check(workerMissing bool) {
	if !workerMissing || p.moves == 0 {
		p.missing = time.Time{}
		return
	}
	now := time.Now()
	if p.missing.IsZero() {
		p.missing = now
	}
	if now.Sub(p.missing) >= missingFor && now.Sub(p.moved) >= betweenMoves {
		p.moved = now
		p.moves--
		leaveProcessor()
	}
}

func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning a worker to processor %d: %w", cpu, err)
	}
	return nil
}

func leaveProcessor() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var allowed unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil || allowed.Count() < 2 {
		return
	}
	cpu, err := processor()
	if err != nil {
		return
	}
	others := allowed
	others.Clear(cpu)
	if unix.SchedSetaffinity(0, &others) == nil {
		_ = unix.SchedSetaffinity(0, &allowed) // the mask before
	}
}

func processor() (int, error) {
	var cpu uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); err != 0 {
		return 0, fmt.Errorf("getcpu: %w", err)
	}
	return int(cpu), nil
}
