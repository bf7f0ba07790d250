package engine

import (
	"errors"
	"fmt"
	"time"

	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/parallel"
)

// A Peer is a worker beside the first one: its part of the model, and its threads.
type Peer struct {
	Model *model.Model
	Pool  *parallel.Pool
}

// A message is all that a worker receives about a step. It does not change until all workers
// have answered. A step with many logits is sent several times, for some of them each time.
type message struct {
	from, to int // logits to compute; from 0 on, the layers are computed before

	copies []kvstore.Pair
	fresh  []int32     // with the tag invariants: blocks of which nothing was computed before
	batch  model.Batch // tokens, block tables, slot mapping
}

// A worker computes its part of the model over the blocks of its heads. All workers
// have the same block table.
type worker struct {
	remote    Remote // nil: no other process follows
	runner    *model.Runner
	store     *kvstore.Store
	in        chan *message
	out       chan computed
	transfers chan *transfer // if there is a remote

	// The first worker says here, once in each step, that only the logits are left to compute.
	nearEnd chan struct{}
}

// computed is what a worker has when it has computed a step.
type computed struct {
	output output // the first worker's
	err    error
	at     time.Time
}

// An output is logits of a step and, if it was computed, the token with the largest logit of each
// row. It is valid until the next start.
type output struct {
	logits  []float32
	largest []int32 // nil: not known
}

// workers are in lockstep.
type workers []*worker

// newWorkers gives each worker its store and starts it.
func newWorkers(c *Config, store kvstore.Config) (workers, error) {
	var all workers
	var group model.Group = c.Remote
	if c.Remote == nil {
		group = model.NewWorkers(c.workers())
	}
	for i, p := range append([]Peer{{c.Model, c.Pool}}, c.Peers...) {
		w := &worker{remote: c.Remote, transfers: make(chan *transfer)}
		err := w.open(p, store, group, c)
		all = append(all, w)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: worker %d: %w", ErrConfig, i, err), all.close())
		}
		if i == 0 {
			w.nearEnd = make(chan struct{}, 1)
		}
		w.in, w.out = make(chan *message), make(chan computed)
		go w.loop()
	}
	return all, nil
}

func (w *worker) open(p Peer, store kvstore.Config, group model.Group, c *Config) (err error) {
	store.Shape = p.Model.KVShape(c.BlockSize, c.KVCacheDType)
	if w.store, err = kvstore.New(store, p.Pool); err != nil {
		return err
	}
	if w.runner, err = model.NewRunner(p.Model, w.store, p.Pool, group, c.places...); err != nil {
		return err
	}
	w.runner.Limit(c.asked)
	return nil
}

func (w *worker) loop() {
	if w.remote != nil {
		w.lead()
	}
	for m := range w.in {
		w.out <- w.answer(m)
	}
}

func (w *worker) answer(m *message) (c computed) {
	if m.from == 0 {
		c.err = w.compute(m)
		if w.nearEnd != nil {
			w.nearEnd <- struct{}{}
		}
	}
	if c.err == nil {
		c.output.logits, c.err = w.runner.ComputeLogits(&m.batch, m.from, m.to)
		c.output.largest = w.runner.Largest()
	}
	c.at = time.Now()
	return c
}

// compute copies blocks and computes the layers of the model. With the tag invariants, what it reads
// of a fresh block before it has written there is NaN.
func (w *worker) compute(m *message) error {
	if err := w.store.CopyBlocks(m.copies); err != nil {
		return err
	}
	w.store.Poison(m.fresh)
	return w.runner.Forward(&m.batch)
}

// start has all workers compute a step, or more of its logits. wait must follow; awaitNearEnd before it,
// if the layers are computed.
func (all workers) start(m *message) {
	for _, w := range all {
		w.in <- m
	}
}

// awaitNearEnd returns when the first worker has computed all layers, and not the logits.
func (all workers) awaitNearEnd() { <-all[0].nearEnd }

// wait returns the first worker's output when all have computed what was asked for, and when the last
// one had. An error is about the message, so all have it.
func (all workers) wait() (first output, at time.Time, err error) {
	for i, w := range all {
		c := <-w.out
		if i == 0 {
			first = c.output
		}
		if c.at.After(at) {
			at = c.at
		}
		err = errors.Join(err, c.err)
	}
	return first, at, err
}

// A transfer copies blocks between the stores of all workers and memory. The parts of a block follow each other,
// worker after worker, and have the same size.
type transfer struct {
	kind   byte // messageRead: from the stores, or messageWrite
	blocks []int32
	data   [][]byte // of each block
	done   chan struct{}
}

// move copies blocks. Parts of other processes are copied between two steps, so the goroutine that waits for steps must
// not call it while one is in flight.
func (all workers) move(kind byte, blocks []int32, data [][]byte) {
	if first := all[0]; first.remote != nil {
		t := transfer{kind, blocks, data, make(chan struct{})}
		first.transfers <- &t
		<-t.done
		return
	}
	for i, w := range all {
		for b, id := range blocks {
			w.copyBlock(kind, id, part(data[b], i, len(all)))
		}
	}
}

// part returns part i of n equal ones.
func part(data []byte, i, n int) []byte { return data[i*len(data)/n : (i+1)*len(data)/n] }

// copyBlock copies this worker's part of a block.
func (w *worker) copyBlock(kind byte, id int32, data []byte) {
	if kind == messageRead {
		w.store.ReadBlock(id, data)
	} else {
		w.store.WriteBlock(id, data)
	}
}

// close ends the workers and gives their stores' memory back.
func (all workers) close() error {
	var err error
	for _, w := range all {
		if w.in != nil {
			close(w.in)
		}
		if w.in != nil && w.remote != nil {
			<-w.out
		}
		if w.store != nil {
			err = errors.Join(err, w.store.Close())
		}
	}
	return err
}
