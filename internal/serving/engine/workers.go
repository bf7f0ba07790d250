package engine

import (
	"errors"
	"fmt"
	"time"

	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/parallel"
)

// A Peer describes a worker after the first one: its part of the model, and the pool of its threads.
type Peer struct {
	Model *model.Model
	Pool  *parallel.Pool
}

// A modelInput is the input that a step sends to each worker (vLLM's SchedulerOutput). It does not change
// until all workers have returned a result. If a step has more logits than one call of ComputeLogits may
// return, the input is sent several times, each time with other rows of logits to compute.
type modelInput struct {
	// If start is 0, the worker begins with two other tasks: it copies blocks (see the field copies), and it computes
	// the layers. In any case it then computes the logits [start, end).
	start, end int

	prepared bool // a Device has the inputs of the batch

	copies []kvstore.Pair
	fresh  []int32 // only with the build tag invariants: blocks that contain nothing yet
	batch  model.Batch
}

// A worker computes its part of the model. All workers have the same block tables. The blocks of a worker contain the
// keys and values of its part of the heads.
type worker struct {
	remote    Remote // processes that this one leads, or nil
	runner    ModelRunner
	inputs    chan *modelInput // nil for a runner of a Device, which is used by the engine's loop
	results   chan workerResult
	begun     []begun        // steps of a Device whose results were not taken
	transfers chan *transfer // only with a Remote

	// Worker 0 sends a value to nearEnd once in each step, when it has computed the layers and only the logits remain.
	// nearEnd is nil for other workers and with a Device.
	nearEnd chan struct{}
}

// A begun is an input whose layers are being computed.
type begun struct {
	input *modelInput
	err   error
}

// A workerResult is the result of a modelInput.
type workerResult struct {
	output modelOutput // only of the first worker
	err    error
	ended  time.Time
}

// A modelOutput has the requested logits and, if the input begins with the layers, the hidden states of the batch
// (vLLM's ModelRunnerOutput has sampled tokens and pooler outputs instead). It is valid
// until start is called again.
type modelOutput struct {
	logits  []float32
	largest []int32 // the token of each row that was chosen by Sample, or has the largest logit; nil if unknown
	states  []float32
}

// workers compute the same steps at the same time.
type workers []*worker

// newWorkers opens the workers' runners and starts the workers.
func newWorkers(c *Config, store kvstore.Config) (workers, error) {
	var all workers
	var group model.Group = c.Remote
	if c.Remote == nil {
		group = model.NewWorkers(c.workers())
	}
	for i, p := range append([]Peer{{c.Model, c.Pool}}, c.Peers...) {
		runner, err := newRunner(p, store, group, c)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: worker %d: %w", ErrConfig, i, err), all.close())
		}
		w := &worker{remote: c.Remote, runner: runner, transfers: make(chan *transfer)}
		all = append(all, w)
		if c.Device == nil {
			if i == 0 {
				w.nearEnd = make(chan struct{}, 1)
			}
			w.inputs, w.results = make(chan *modelInput), make(chan workerResult)
			go w.loop()
		}
	}
	return all, nil
}

func (w *worker) loop() {
	if w.remote != nil {
		w.lead()
	}
	for m := range w.inputs {
		w.results <- w.execute(m)
	}
}

// execute computes what an input asks for.
func (w *worker) execute(m *modelInput) workerResult { return w.begin(m).end(w) }

// begin computes the layers, or launches them on a Device.
func (w *worker) begin(m *modelInput) begun {
	b := begun{input: m}
	if m.start == 0 {
		b.err = w.compute(m)
		if w.nearEnd != nil {
			w.nearEnd <- struct{}{}
		}
	}
	return b
}

// end computes the logits, and the hidden states if the input began with the layers.
func (b begun) end(w *worker) (c workerResult) {
	if c.err = b.err; c.err == nil {
		c.output.logits, c.err = w.runner.ComputeLogits(&b.input.batch, b.input.start, b.input.end)
		c.output.largest = w.runner.Largest()
	}
	if c.err == nil && b.input.start == 0 {
		c.output.states, c.err = w.runner.ComputeStates(&b.input.batch)
	}
	c.ended = time.Now()
	return c
}

// compute copies blocks and computes the layers of the model. With the build tag invariants, unwritten parts of fresh
// blocks are NaN.
func (w *worker) compute(m *modelInput) error {
	if err := w.runner.CopyBlocks(m.copies); err != nil {
		return err
	}
	w.runner.Poison(m.fresh)
	if m.prepared {
		return w.runner.(DeviceRunner).ForwardPrepared(&m.batch)
	}
	return w.runner.Forward(&m.batch)
}

// prepare sends the inputs of the next step to a Device.
func (all workers) prepare(m *modelInput) {
	m.prepared = true
	all[0].runner.(DeviceRunner).Prepare(&m.batch)
}

// start sends an input to all workers. The caller must then call wait. If m.start is 0, the caller must call
// awaitNearEnd before wait.
func (all workers) start(m *modelInput) {
	for _, w := range all {
		if w.inputs == nil {
			w.begun = append(w.begun, w.begin(m))
		} else {
			w.inputs <- m
		}
	}
}

// choose makes a Device choose the tokens of the input that was started last.
func (all workers) choose(choices []sampling.Choice) {
	w := all[0]
	b := &w.begun[len(w.begun)-1]
	if b.err == nil {
		b.err = w.runner.(DeviceRunner).Sample(choices)
	}
}

// failed reports whether the last input could not be launched on a Device.
func (all workers) failed() bool {
	b := all[0].begun
	return len(b) > 0 && b[len(b)-1].err != nil
}

// result waits for the result of the oldest input.
func (w *worker) result() workerResult {
	if w.inputs != nil {
		return <-w.results
	}
	c := w.begun[0].end(w)
	w.begun = append(w.begun[:0], w.begun[1:]...)
	return c
}

// awaitNearEnd waits until the first worker has computed all layers, or launched them on a Device.
func (all workers) awaitNearEnd() {
	if w := all[0]; w.nearEnd != nil {
		<-w.nearEnd
	}
}

// areNearEnd reports whether awaitNearEnd would return at once.
func (all workers) areNearEnd() bool { return all[0].nearEnd == nil || len(all[0].nearEnd) > 0 }

// wait waits for the results of the oldest input that was started. It returns the output of the first worker, and the
// time when the last worker finished.
func (all workers) wait() (first modelOutput, ended time.Time, err error) {
	for i, w := range all {
		c := w.result()
		if i == 0 {
			first = c.output
		}
		if c.ended.After(ended) {
			ended = c.ended
		}
		err = errors.Join(err, c.err)
	}
	return first, ended, err
}

// A transfer copies blocks from all workers to memory, or back. A block in memory consists of one part for each worker,
// in the order of their ranks. All parts have the same size.
type transfer struct {
	kind   messageKind // readBlocks or writeBlocks
	blocks []int32
	data   [][]byte // of each block
	done   chan struct{}
}

// move copies blocks between the workers and data. Workers in other processes copy their parts of the blocks
// only between two steps. So the goroutine that waits for the results of steps must not call move while a
// step is in flight: it would wait forever.
func (all workers) move(kind messageKind, blocks []int32, data [][]byte) {
	if first := all[0]; first.remote != nil {
		t := transfer{kind, blocks, data, make(chan struct{})}
		first.transfers <- &t
		<-t.done
		return
	}
	parts := make([][]byte, len(data))
	for i, w := range all {
		for b := range data {
			parts[b] = part(data[b], i, len(all))
		}
		w.copyBlocks(kind, blocks, parts)
	}
}

// part returns part i of n equal ones.
func part(data []byte, i, n int) []byte { return data[i*len(data)/n : (i+1)*len(data)/n] }

// copyBlocks copies this worker's parts of blocks.
func (w *worker) copyBlocks(kind messageKind, ids []int32, data [][]byte) {
	if kind == readBlocks {
		w.runner.ReadBlocks(ids, data)
	} else {
		w.runner.WriteBlocks(ids, data)
	}
}

// close ends the workers and closes their runners.
func (all workers) close() error {
	var err error
	for _, w := range all {
		if w.inputs != nil {
			close(w.inputs)
		}
		if w.remote != nil {
			<-w.results
		}
		err = errors.Join(err, w.runner.Close())
	}
	return err
}
