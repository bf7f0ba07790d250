package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"llmmemory/internal/serving/model"
)

// A WeightStore frees the weights of all workers, and loads them again. Only one of its methods runs at a time. While it
// runs, no step does.
type WeightStore interface {
	Free() error

	// Load loads the models of the workers by rank. After an error nothing is loaded.
	Load() ([]*model.Model, error)
}

// ErrNoSleep is the error of Sleep if the engine has no WeightStore.
var ErrNoSleep = errors.New("the weights of this server cannot be freed, because they are on a GPU or in several processes")

// A LoadError is the error of requests for which the weights could not be loaded again. The next request tries again.
type LoadError struct{ Cause error }

func (f *LoadError) Error() string {
	return "the weights could not be loaded again: " + f.Cause.Error()
}

func (f *LoadError) Unwrap() error { return f.Cause }

// A sleepState says whether the weights are loaded. The engine's lock protects it.
type sleepState struct {
	wanted  int  // calls of Sleep that wait until the engine falls asleep, which it does when it has no requests
	wake    bool // the engine shall wake up without a request
	asleep  bool // weights, keys and values are freed
	loading bool
	changed chan struct{} // closed when asleep, loading, sleeps or loads has changed

	sleeps  int   // how often the engine has fallen asleep
	unfreed error // why the last time not all was freed, or nil
	loads   int   // attempts to load the weights again that have ended
	failure error // of the last of these, or nil

	stop   func() bool // ends the idle time; nil if it does not run
	number int         // of the idle time
	due    bool        // the idle time is over
}

// after calls f after a duration, unless stop is called before. Tests replace it.
var after = func(d time.Duration, f func()) (stop func() bool) { return time.AfterFunc(d, f).Stop }

func (s *sleepState) note() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Asleep reports whether the weights are freed, and whether they are being loaded again.
func (e *Engine) Asleep() (asleep, loading bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sleep.asleep, e.sleep.loading
}

// Sleep waits until the engine has no requests, and frees the weights, the keys and the values (vLLM's sleep). Tiers
// stay. The next request, or WakeUp, loads the weights again. If ctx ends before, this call no longer makes the engine
// sleep. If not all can be freed, Sleep returns the error, and the engine sleeps nevertheless.
func (e *Engine) Sleep(ctx context.Context) error {
	if e.config.Weights == nil {
		return ErrNoSleep
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.sleep
	before := s.sleeps
	fallen := func() bool { return s.sleeps > before }
	s.wanted++
	err := e.await(ctx, func() bool { return fallen() || s.asleep && !s.loading })
	if !fallen() {
		s.wanted--
	}
	if err == nil {
		err = s.unfreed
	}
	return err
}

// WakeUp loads the weights if the engine sleeps (vLLM's wake_up). It returns a LoadError if that fails.
func (e *Engine) WakeUp(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.sleep
	if !s.asleep {
		return nil
	}
	s.wake = true
	before := s.loads
	if err := e.await(ctx, func() bool { return s.loads > before }); err != nil {
		return err
	}
	return s.failure
}

// await tells the loop that the state has changed, and waits until done returns true. The caller holds the engine's lock.
func (e *Engine) await(ctx context.Context, done func() bool) error {
	e.changed.Broadcast()
	for !done() {
		switch {
		case e.closed:
			return ErrClosed
		case ctx.Err() != nil:
			return ctx.Err()
		}
		changed := e.sleep.changed
		e.mu.Unlock()
		select {
		case <-changed:
		case <-e.stopped:
		case <-ctx.Done():
		}
		e.mu.Lock()
	}
	return nil
}

// idle is called with the engine's lock while the engine has no requests. It lets the engine sleep if that is wanted, and
// reports whether it did. Otherwise it starts the time after which the engine sleeps.
func (e *Engine) idle() (slept bool) {
	s := &e.sleep
	switch {
	case e.config.Weights == nil || s.asleep || e.closed || e.series > 0 || len(e.live) > 0:
		return false
	case s.wanted > 0 || s.due:
		return e.fallAsleep()
	case e.config.IdleUnload > 0 && s.stop == nil:
		number := s.number
		s.stop = after(e.config.IdleUnload, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			if s.number == number { // no request has come
				s.due = true
				e.changed.Broadcast()
			}
		})
	}
	return false
}

// busy ends the idle time. It is called with the engine's lock.
func (e *Engine) busy() {
	s := &e.sleep
	if s.stop != nil {
		s.stop()
	}
	s.stop, s.due = nil, false
	s.number++
}

// fallAsleep frees the weights, keys and values. It returns false if blocks are still in use or in
// transfer.
func (e *Engine) fallAsleep() bool {
	e.busy()
	if e.offload != nil && e.offload.loads > 0 {
		return false
	}
	empty, err := e.sched.Reset(false)
	if err != nil || !empty {
		return false
	}
	e.publish()
	e.mu.Unlock()
	err = errors.Join(e.workers.close(), e.config.Weights.Free())
	e.workers = nil
	e.mu.Lock()
	s := &e.sleep
	s.asleep, s.sleeps, s.unfreed, s.wanted = true, s.sleeps+1, err, 0
	s.note()
	return true
}

// awake loads the weights if the engine sleeps. If that fails, it ends all requests and returns false.
func (e *Engine) awake() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := &e.sleep
	s.wake = false
	if !s.asleep {
		return true
	}
	s.loading = true
	e.lastStep.Store(0) // loading is no step
	s.note()
	e.mu.Unlock()
	all, err := e.load()
	e.mu.Lock()
	s.loading, s.wake, s.failure = false, false, nil
	s.loads++
	if err != nil {
		s.failure = &LoadError{err}
		for _, q := range slices.Collect(maps.Values(e.live)) {
			e.failAnswers(q.stream, s.failure)
		}
	} else {
		e.workers, s.asleep = all, false
		e.lastStep.Store(time.Now().UnixNano())
	}
	s.note()
	return err == nil
}

// load loads the weights and starts workers.
func (e *Engine) load() (workers, error) {
	models, err := e.config.Weights.Load()
	if err != nil {
		return nil, err
	}
	c := e.config
	c.Peers = slices.Clone(c.Peers)
	if !reflect.DeepEqual(models[0].Config, c.Model.Config) {
		err = errors.New("the configuration in the model's files has changed; start the server again")
	}
	c.Model = models[0]
	for i := range c.Peers {
		c.Peers[i].Model = models[i+1]
	}
	var all workers
	if err == nil {
		all, err = newWorkers(&c, e.store)
	}
	if err != nil {
		return nil, fmt.Errorf("%w", errors.Join(err, e.config.Weights.Free()))
	}
	return all, nil
}
