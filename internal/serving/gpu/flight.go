package gpu

import (
	"errors"
	"fmt"
	"runtime"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/model"
)

// A flight is the host's memory for one batch. A batch uses its flight until the engine takes the results of the batch.
// The engine launches the next batch before that, so a runner has two flights. Batches can share memory on the GPU,
// because the stream computes them one after the other.
type flight struct {
	pairs    *cuda.Pinned // blocks to copy
	inputs   *cuda.Pinned
	results  *cuda.Pinned
	states   *cuda.Pinned // in the activations' type
	sampling *cuda.Pinned // how tokens are chosen
	computed *cuda.Event
	rows     int  // results that were launched with the batch
	sampled  bool // their tokens are chosen
}

func (f *flight) allocate(c *cuda.Context, results, states int) (err error) {
	if f.results, err = c.AllocPinned(results); err != nil {
		return err
	}
	if f.states, err = c.AllocPinned(states); err != nil {
		return err
	}
	newEvent := func() (*cuda.Event, error) { return c.NewEvent(false) }
	if runtime.GOMAXPROCS(0) <= fewProcessors {
		newEvent = c.NewBlockingEvent
	}
	f.computed, err = newEvent()
	return err
}

// fewProcessors is the largest number of processors with which a thread that waits for the GPU sleeps. With more
// processors, the thread uses one of them while it waits.
const fewProcessors = 4

func (f *flight) close() error {
	return errors.Join(f.pairs.Close(), f.inputs.Close(), f.results.Close(), f.states.Close(), f.sampling.Close(), f.computed.Close())
}

// next returns the flight for the next batch. It returns an error if both flights are in use.
func (r *Runner) next() (*flight, error) {
	if len(r.launched) == len(r.flights) {
		return nil, fmt.Errorf("%w: %d batches are computed already", model.ErrBatch, len(r.launched))
	}
	if len(r.launched) > 0 && r.launched[0] == &r.flights[0] {
		return &r.flights[1], nil
	}
	return &r.flights[0], nil
}

// grown returns p if it has at least size bytes. Otherwise it frees p and returns larger pinned memory. The
// GPU must not be using p.
func (d *Device) grown(p *cuda.Pinned, size int) (*cuda.Pinned, error) {
	if p != nil && len(p.Bytes()) >= size {
		return p, nil
	}
	if err := p.Close(); err != nil {
		return nil, err
	}
	return d.context.AllocPinned(2 * size)
}
