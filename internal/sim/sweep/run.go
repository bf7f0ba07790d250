package sweep

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// Left returns the jobs of the folder's shard, and those without a result when the folder was opened.
func (f *Folder) Left() (part, todo []Job) {
	for _, i := range f.Sweep.part(f.Shard) {
		part = append(part, f.Sweep.Jobs[i])
		if o := f.State.Outcomes[i]; o == nil || o.Result == nil {
			todo = append(todo, f.Sweep.Jobs[i])
		}
	}
	return part, todo
}

// Run runs the jobs that are left, at most atOnce at a time (0: one for each processor), and calls done for each
// outcome that is kept, one at a time. It returns when all are finished, when ctx is done, with its error, or when an
// outcome cannot be kept. A job that fails is an outcome.
func (f *Folder) Run(ctx context.Context, atOnce int, done func(Outcome)) error {
	_, todo := f.Left()
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
				o, err := f.Sweep.outcome(ctx, j)
				if err == nil {
					saving.Lock()
					if err = f.log.Append(o); err == nil {
						done(o)
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
func (s *Sweep) outcome(ctx context.Context, j Job) (Outcome, error) {
	o := Outcome{Job: j}
	r, ends, err := s.run(ctx, j)
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
