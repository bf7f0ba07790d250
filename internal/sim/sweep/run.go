package sweep

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// A Watcher hears how a sweep goes on. Its functions may be nil.
type Watcher struct {
	Begun    func(part, todo []Job)    // once: the shard's jobs, and those that are still to be run
	Advanced func(j Job, answered int) // requests of a job under way; from several goroutines at once
	Done     func(o Outcome)           // a job is finished and kept; one at a time
}

// Run runs the jobs of the folder's shard that have no result, at most atOnce at a time
// (0: one for each processor). It returns when they are finished, when ctx is
// done, with its error, or when an outcome cannot be kept. A job that fails is an
// outcome.
func (f *Folder) Run(ctx context.Context, atOnce int, w Watcher) error {
	var part, todo []Job
	for _, i := range f.Sweep.part(f.Shard) {
		part = append(part, f.Sweep.Jobs[i])
		if o := f.State.Outcomes[i]; o == nil || o.Result == nil {
			todo = append(todo, f.Sweep.Jobs[i])
		}
	}
	if w.Begun != nil {
		w.Begun(part, todo)
	}
	if atOnce < 1 {
		atOnce = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan Job)
	var saving sync.Mutex
	var workers sync.WaitGroup
	for range min(atOnce, len(todo)) {
		workers.Go(func() {
			for j := range next {
				o, err := f.Sweep.outcome(ctx, j, w)
				if err == nil {
					saving.Lock()
					if err = f.save(o); err == nil && w.Done != nil {
						w.Done(o)
					}
					saving.Unlock()
				}
				if err != nil {
					cancel(err) // the first one counts
				}
			}
		})
	}
	for _, j := range todo {
		select {
		case next <- j:
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

// outcome runs a job. The error is for what is not the job's: an interruption, a
// file that has changed.
func (s *Sweep) outcome(ctx context.Context, j Job, w Watcher) (Outcome, error) {
	o := Outcome{Job: j}
	r, ends, err := s.run(ctx, j, func(answered int) {
		if w.Advanced != nil {
			w.Advanced(j, answered)
		}
	})
	switch {
	case err == nil:
		o.Result, o.Range = r, ends
	case ctx.Err() != nil:
		return o, ctx.Err()
	case errors.Is(err, ErrChanged):
		return o, err
	default:
		o.Error = err.Error()
	}
	return o, nil
}
