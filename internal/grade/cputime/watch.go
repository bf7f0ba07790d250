package cputime

import (
	"os"
	"sync"
	"time"
)

// A Watch looks at a process until it is stopped, and ends the process when its time is
// over.
type Watch struct {
	kill  func()
	stop  chan struct{}
	ended chan struct{}

	lock   sync.Mutex
	killed bool
	over   error
	meter  *Meter
}

// Start watches a process whose work as a whole is limited. kill ends it, and is called
// once at most.
func Start(pid int, most time.Duration, kill func()) *Watch {
	w := &Watch{kill: kill, stop: make(chan struct{}), ended: make(chan struct{}), meter: NewMeter(pid, most)}
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
			w.over = err
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

// Stop is for a process that has ended. It says whether Kill was called, and gives the
// error of the Meter, if there is one.
func (w *Watch) Stop(state *os.ProcessState) (killed bool, over error) {
	close(w.stop)
	<-w.ended
	if w.killed {
		return true, w.over
	}
	return false, w.meter.Finish(Ended(state))
}
