package engine

import (
	"errors"
	"fmt"

	"llmmemory/internal/kvstore"
	"llmmemory/internal/model"
	"llmmemory/internal/parallel"
)

// A Peer is a worker beside the first one: its part of the model, and its threads.
type Peer struct {
	Model *model.Model
	Pool  *parallel.Pool
}

// A message is all that a worker is told of a step. It stays as it is until all workers
// have answered.
type message struct {
	copies []kvstore.Pair
	batch  model.Batch // tokens, block tables, slot mapping
}

// A worker computes its part of the model over the blocks of its heads. All workers
// have the same block table.
type worker struct {
	runner *model.Runner
	store  *kvstore.Store
	in     chan *message // nil for the first, which runs in the engine's loop
	out    chan error
}

// workers are in lockstep.
type workers []*worker

// newWorkers gives each worker its store and starts those beside the first one.
func newWorkers(c *Config, store kvstore.Config) (workers, error) {
	var all workers
	group := model.NewWorkers(1 + len(c.Peers))
	for i, p := range append([]Peer{{c.Model, c.Pool}}, c.Peers...) {
		w := &worker{}
		err := w.open(p, store, group, c)
		all = append(all, w)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%w: worker %d: %w", ErrConfig, i, err), all.close())
		}
		if i > 0 {
			w.in, w.out = make(chan *message), make(chan error)
			go w.loop()
		}
	}
	return all, nil
}

func (w *worker) open(p Peer, store kvstore.Config, group model.Group, c *Config) (err error) {
	store.Shape = p.Model.KVShape(c.BlockSize, c.KVCacheDType)
	if w.store, err = kvstore.New(store, p.Pool); err != nil {
		return err
	}
	w.runner, err = model.NewRunner(p.Model, w.store, p.Pool, group)
	return err
}

func (w *worker) loop() {
	for m := range w.in {
		_, err := w.compute(m)
		w.out <- err
	}
}

// compute copies blocks and runs the model.
func (w *worker) compute(m *message) ([]float32, error) {
	if err := w.store.CopyBlocks(m.copies); err != nil {
		return nil, err
	}
	return w.runner.Forward(&m.batch)
}

// compute has all workers compute a step and returns the first one's logits. An error is
// about the message, so all have it.
func (all workers) compute(m *message) ([]float32, error) {
	for _, w := range all[1:] {
		w.in <- m
	}
	logits, err := all[0].compute(m)
	for _, w := range all[1:] {
		err = errors.Join(err, <-w.out)
	}
	return logits, err
}

// close ends the workers and gives their stores' memory back.
func (all workers) close() error {
	var err error
	for _, w := range all {
		if w.in != nil {
			close(w.in)
		}
		if w.store != nil {
			err = errors.Join(err, w.store.Close())
		}
	}
	return err
}
