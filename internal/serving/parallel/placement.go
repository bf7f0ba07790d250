package parallel

import "time"

// A placement moves the thread that calls Run off the processor of a worker's thread.
//
// In a virtual machine, the host takes back a processor that has nothing to do, and Linux then does not
// consider it idle (vcpu_is_preempted). So a thread that wakes after a long sleep is often placed on the
// processor of the thread that woke it. It waits there, and Linux may take 10 ms to move one of the two.
type placement struct {
	moves   int       // that are left, until a worker has slept for long again
	missing time.Time // the first Run since the last long sleep to which not all workers came; zero: they come
	moved   time.Time
}

const (
	longSleep    = 2 * time.Millisecond
	missingFor   = 100 * time.Microsecond // waking takes 20 to 100 µs
	betweenMoves = time.Millisecond
	mostMoves    = 3 // another program may have the processors: then moving gains nothing, and takes up to 100 µs
)

// woke notes that a worker that has slept since the given time is woken.
func (p *placement) woke(since time.Time) {
	if time.Since(since) >= longSleep {
		p.moves, p.missing = mostMoves, time.Time{}
	}
}

// check moves the calling thread to another processor after a Run, if workers that were called
// have been missing for a while.
func (p *placement) check(missing bool) {
	if !missing || p.moves == 0 {
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
