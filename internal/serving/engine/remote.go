package engine

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"time"

	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
)

// A Remote connects process 0 to the other processes. Process 0 schedules, and has part 0 of the model. The others
// call Follow. Only one goroutine at a time uses a Remote.
type Remote interface {
	Leader

	// Broadcast sends a message to all other processes.
	Broadcast(message []byte) error

	// Abort ends all processes. It does not return.
	Abort(cause error)
}

// A Leader connects this process to the other processes that share a model. Process 0 schedules the steps. Each other
// process passes a Leader to Follow, which computes its part of these steps.
type Leader interface {
	model.Group
	Size() int // number of processes, with this one

	// Send sends a message to another process.
	Send(receiver int, message []byte) error

	// Receive returns the next message from another process, valid until the next call. Broadcast messages come from
	// process 0.
	Receive(sender int) ([]byte, error)
}

// A message is sent by process 0 to all other processes. All messages of process 0 together are one stream of package
// gob.
type message struct {
	Kind       messageKind
	Start, End int // of the modelInput, with the kind computeStep
	Copies     []kvstore.Pair
	Fresh      []int32
	Batch      model.Batch
	Blocks     []int32 // with readBlocks and writeBlocks
}

type messageKind byte

const (
	computeStep messageKind = iota
	readBlocks              // each process sends its parts of the blocks to process 0
	writeBlocks             // each process receives its parts of the blocks
	showAlive               // all processes take part in an AllReduce, in which a lost one is noticed
	endSteps
)

// aliveInterval is the time between two messages of the kind showAlive while there is no work.
const aliveInterval = time.Second

// lead is the loop of the worker of process 0. For each step and transfer it sends a message, so that the other
// processes do the same.
func (w *worker) lead() {
	defer close(w.results)
	var data bytes.Buffer
	encoder := gob.NewEncoder(&data)
	send := func(m message) {
		data.Reset()
		err := encoder.Encode(m)
		if err == nil {
			err = w.remote.Broadcast(data.Bytes())
		}
		if err != nil {
			w.remote.Abort(err)
		}
	}
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for {
		select {
		case m, open := <-w.inputs:
			if !open {
				send(message{Kind: endSteps})
				return
			}
			send(message{Kind: computeStep, Start: m.start, End: m.end, Copies: m.copies, Fresh: m.fresh, Batch: m.batch})
			c := w.execute(m)
			if c.err != nil {
				w.remote.Abort(c.err)
			}
			w.results <- c
		case t := <-w.transfers:
			send(message{Kind: t.kind, Blocks: t.blocks})
			if err := w.leadTransfer(t); err != nil {
				w.remote.Abort(err)
			}
			close(t.done)
		case <-alive.C:
			send(message{Kind: showAlive})
			if err := w.remote.AllReduce(0, make([]float32, 1)); err != nil {
				w.remote.Abort(err)
			}
		}
	}
}

// leadTransfer copies this process's parts of the blocks. It sends the other parts to their processes, or receives
// them.
func (w *worker) leadTransfer(t *transfer) error {
	n := w.remote.Size()
	for b, id := range t.blocks {
		w.copyBlocks(t.kind, []int32{id}, [][]byte{part(t.data[b], 0, n)})
		for rank := 1; rank < n; rank++ {
			data := part(t.data[b], rank, n)
			if t.kind == writeBlocks {
				if err := w.remote.Send(rank, data); err != nil {
					return err
				}
			} else if err := receiveInto(data, w.remote, rank); err != nil {
				return err
			}
		}
	}
	return nil
}

// followTransfer sends this process's parts of blocks or receives them.
func (w *worker) followTransfer(m *message, size int, leader Leader) error {
	data := make([]byte, size)
	for _, id := range m.Blocks {
		if m.Kind == writeBlocks {
			if err := receiveInto(data, leader, 0); err != nil {
				return err
			}
		}
		w.copyBlocks(m.Kind, []int32{id}, [][]byte{data})
		if m.Kind == readBlocks {
			if err := leader.Send(0, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// receiveInto receives a message of len(data) bytes.
func receiveInto(data []byte, l Leader, sender int) error {
	got, err := l.Receive(sender)
	if err != nil {
		return err
	}
	if len(got) != len(data) {
		return errMessage
	}
	copy(data, got)
	return nil
}

// Follow computes steps for an engine in another process. It uses the part of the model that c.Model has loaded. Follow
// returns when the engine is closed. The sizes and limits in c must equal those in the engine's Config. After an error
// the processes cannot continue.
func Follow(c Config, leader Leader) error {
	part := c.Model.Part()
	store, err := c.complete(&c.Model.Config, part.Size)
	if err != nil {
		return err
	}
	runner, err := newCPURunner(Peer{c.Model, c.Pool}, store, leader, &c)
	if err != nil {
		return err
	}
	w := &worker{runner: runner}
	return errors.Join(w.follow(part.Rank, store.BlockBytes(), leader), runner.Close())
}

func (w *worker) follow(rank, blockBytes int, leader Leader) error {
	var received bytes.Buffer
	decoder := gob.NewDecoder(&received)
	for {
		data, err := leader.Receive(0)
		if err != nil {
			return err
		}
		received.Write(data)
		var m message
		if decoder.Decode(&m) != nil || received.Len() > 0 {
			return errMessage
		}
		switch m.Kind {
		case endSteps:
			return nil
		case showAlive:
			err = leader.AllReduce(rank, make([]float32, 1))
		case readBlocks, writeBlocks:
			err = w.followTransfer(&m, blockBytes, leader)
		default:
			err = w.execute(&modelInput{start: m.Start, end: m.End, copies: m.Copies, fresh: m.Fresh, batch: m.Batch}).err
		}
		if err != nil {
			return err
		}
	}
}

var errMessage = fmt.Errorf("%w: a message that no engine of this version sends", ErrConfig)
