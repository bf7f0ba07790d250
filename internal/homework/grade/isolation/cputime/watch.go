package cputime

import (
	"os"
	"sync"
	"time"
)

// A Watch watches a process with a Meter and kills the process when it reaches its limit, until Stop is called.
type Watch struct {
	kill  func()
	stop  chan struct{}
	ended chan struct{}

	lock    sync.Mutex
	killed  bool
	verdict error
	meter   *Meter
}

// Start watches the process pid, whose limit of processor time is limit. The Watch calls kill at most once, to end the
// process.
func Start(pid int, limit time.Duration, kill func()) *Watch {
	w := &Watch{kill: kill, stop: make(chan struct{}), ended: make(chan struct{}), meter: NewMeter(pid, limit)}
	w.meter.process.What = "it"
	go w.look()
	return w
}

func (w *Watch) look() {
	defer close(w.ended)
	for {
		select {
		case <-w.stop:
			return
		case <-time.After(LookEvery):
		}
		if err := w.meter.Look(); err != nil {
			w.verdict = err
			w.Kill()
			return
		}
	}
}

// Kill ends the process.
func (w *Watch) Kill() {
	w.lock.Lock()
	defer w.lock.Unlock()
	if !w.killed {
		w.killed = true
		w.kill()
	}
}

// Stop ends the watch of a process that has ended. killed reports whether the Watch has killed the process. verdict is
// the Meter's error, or nil.
func (w *Watch) Stop(state *os.ProcessState) (killed bool, verdict error) {
	close(w.stop)
	<-w.ended
	if w.killed {
		return true, w.verdict
	}
	return false, w.meter.Finish(Ended(state))
}
