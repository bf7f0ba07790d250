package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
)

// A Remote joins the process that schedules, which has part 0 of the model, to the processes that
// Follow it. One goroutine at a time uses it.
type Remote interface {
	model.Group
	Size() int // processes, with this one

	// Broadcast sends a message to all others.
	Broadcast(message []byte) error

	// Send sends a message to another process.
	Send(to int, message []byte) error

	// Receive returns the next message of another process, which is valid until the next call.
	Receive(from int) ([]byte, error)

	// Abort ends all processes: they are no longer in lockstep. It does not return.
	Abort(cause error)
}

// A Leader joins a process that follows to the one that schedules.
type Leader interface {
	model.Group
	Size() int

	// Send and Receive are those of a Remote. Messages that are broadcast come from process 0.
	Send(to int, message []byte) error
	Receive(from int) ([]byte, error)
}

// Messages begin with their kind.
const (
	messageStep  = 's'
	messageRead  = 'r' // blocks: every process sends its parts
	messageWrite = 'w' // blocks: every process receives its parts
	messageAlive = 'a' // every worker shows that it is there
	messageEnd   = 'e'
)

// aliveInterval is how often processes without work show each other that they are there.
const aliveInterval = time.Second

// lead is the loop of a worker whose steps other processes follow.
func (w *worker) lead() {
	defer close(w.out)
	var data []byte
	send := func(kind byte, visit func(*codec)) {
		c := codec{data: append(data[:0], kind)}
		if visit != nil {
			visit(&c)
		}
		data = c.data
		if err := w.remote.Broadcast(data); err != nil {
			w.remote.Abort(err)
		}
	}
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	for {
		select {
		case m, more := <-w.in:
			if !more {
				send(messageEnd, nil)
				return
			}
			send(messageStep, m.visit)
			c := w.answer(m)
			if c.err != nil {
				w.remote.Abort(c.err)
			}
			w.out <- c
		case t := <-w.transfers:
			send(t.kind, func(c *codec) { numbers(c, &t.blocks) })
			if err := w.leadTransfer(t); err != nil {
				w.remote.Abort(err)
			}
			close(t.done)
		case <-alive.C:
			send(messageAlive, nil)
			if err := w.remote.AllReduce(0, make([]float32, 1)); err != nil {
				w.remote.Abort(err)
			}
		}
	}
}

// leadTransfer copies this process's parts of blocks, and sends the others theirs or receives them. The others have
// the message that says which blocks.
func (w *worker) leadTransfer(t *transfer) error {
	n := w.remote.Size()
	for b, id := range t.blocks {
		w.copyBlock(t.kind, id, part(t.data[b], 0, n))
		for rank := 1; rank < n; rank++ {
			data := part(t.data[b], rank, n)
			if t.kind == messageWrite {
				if err := w.remote.Send(rank, data); err != nil {
					return err
				}
				continue
			}
			got, err := w.remote.Receive(rank)
			if err != nil {
				return err
			}
			if len(got) != len(data) {
				return errMessage
			}
			copy(data, got)
		}
	}
	return nil
}

// followTransfer sends or receives this process's parts.
func (w *worker) followTransfer(t *transfer, size int, leader Leader) error {
	own := make([]byte, size)
	for _, id := range t.blocks {
		if t.kind == messageRead {
			w.store.ReadBlock(id, own)
			if err := leader.Send(0, own); err != nil {
				return err
			}
			continue
		}
		got, err := leader.Receive(0)
		if err != nil {
			return err
		}
		if len(got) != size {
			return errMessage
		}
		w.store.WriteBlock(id, got)
	}
	return nil
}

// Follow computes the steps of an engine in another process with the part of the model that c has, until that
// engine is closed. c must have the same limits as there. After an error the processes are not in lockstep.
func Follow(c Config, leader Leader) error {
	part := c.Model.Part()
	store, err := c.complete(&c.Model.Config, part.Size)
	if err != nil {
		return err
	}
	w := &worker{}
	if err = w.open(Peer{c.Model, c.Pool}, store, leader, &c); err == nil {
		err = w.follow(part.Rank, store.BlockBytes(), leader)
	}
	if w.store != nil {
		err = errors.Join(err, w.store.Close())
	}
	return err
}

func (w *worker) follow(rank, blockBytes int, leader Leader) error {
	var m message
	for {
		data, err := leader.Receive(0)
		if err != nil {
			return err
		}
		if len(data) == 0 {
			return errMessage
		}
		switch data[0] {
		case messageEnd:
			return nil
		case messageAlive:
			err = leader.AllReduce(rank, make([]float32, 1))
		case messageRead, messageWrite:
			t := transfer{kind: data[0]}
			c := codec{data: data[1:], reading: true}
			if numbers(&c, &t.blocks); c.bad || len(c.data) > 0 {
				return errMessage
			}
			err = w.followTransfer(&t, blockBytes, leader)
		default:
			c := codec{data: data[1:], reading: true}
			if m.visit(&c); c.bad || len(c.data) > 0 {
				return errMessage
			}
			err = w.answer(&m).err
		}
		if err != nil {
			return err
		}
	}
}

var errMessage = fmt.Errorf("%w: a message that no engine of this version sends", ErrConfig)

// A codec appends numbers to data, or takes them from its front.
type codec struct {
	data    []byte
	reading bool
	bad     bool
}

// visit passes all that a message has through a codec.
func (m *message) visit(c *codec) {
	number(c, &m.from)
	number(c, &m.to)
	each(c, &m.copies, func(p *kvstore.Pair) {
		number(c, &p.Src)
		number(c, &p.Dst)
	})
	numbers(c, &m.fresh)
	b := &m.batch
	numbers(c, &b.Tokens)
	numbers(c, &b.Positions)
	numbers(c, &b.QueryStart)
	numbers(c, &b.SeqLens)
	c.blocks(&b.Blocks)
	each(c, &b.Others, c.blocks)
	numbers(c, &b.Logits)
}

// blocks passes those of a group of layers.
func (c *codec) blocks(b *model.Blocks) {
	numbers(c, &b.Slots)
	numbers(c, &b.BlockTables)
	number(c, &b.TableStride)
	number(c, &b.CommonPrefix)
}

func number[T int | int32 | int64](c *codec, v *T) {
	if !c.reading {
		c.data = binary.AppendVarint(c.data, int64(*v))
		return
	}
	value, n := binary.Varint(c.data)
	if n <= 0 {
		c.bad, c.data = true, nil
		return
	}
	*v, c.data = T(value), c.data[n:]
}

func numbers[T int32 | int64](c *codec, v *[]T) { each(c, v, func(value *T) { number(c, value) }) }

func each[T any](c *codec, v *[]T, visit func(*T)) {
	n := len(*v)
	if number(c, &n); c.bad || c.reading && (n < 0 || n > len(c.data)) {
		c.bad, c.data = true, nil
		return
	}
	if c.reading {
		*v = slices.Grow((*v)[:0], n)[:n]
	}
	for i := range *v {
		visit(&(*v)[i])
	}
}
