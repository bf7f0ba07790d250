package oracle

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/trace"
)

// A World has the engines and pools of a correct submission at one point of a trace.
type World struct {
	arena   *arena
	library course.Library
	Engines [trace.Engines]*course.Engine
	Pools   [trace.Engines][]byte    // with Slack bytes on both sides, which no call may touch; nil if large
	Ends    [trace.Engines][2][]byte // of a large pool: Slack and the first trace.End bytes; the last trace.End bytes and Slack
	large   [][]byte                 // mappings of large pools
}

// Slack is the number of bytes before and after a pool that no call may change.
const Slack = 256

// Fill writes the bytes that a pool and its slack have before a trace. Any 256 consecutive blocks differ from each
// other, so that a missing copy of a block is detected.
func Fill(bytes []byte) {
	for len(bytes) > 0 {
		bytes = bytes[copy(bytes, filling[:]):]
	}
}

// filling has 256 blocks. Each byte is 221 more, modulo 256, than the byte at the same offset in the preceding block.
var filling = func() (bytes [256 * course.BlockSize]byte) {
	for i := range bytes {
		bytes[i] = byte(0xc3 + i*11 + i/course.BlockSize*29)
	}
	return bytes
}()

// An Outcome is the result of a step. Err is nil or an error of package course. For a step of several calls (Creates,
// Forks, Appends, Frees), Made is the number of successful calls.
type Outcome struct {
	Err  error
	Made int64
}

// Refused reports whether the call failed and changed nothing.
func (o Outcome) Refused() bool { return o.Err != nil }

// OutOfMemory reports whether the call failed because malloc failed.
func (o Outcome) OutOfMemory() bool { return errors.Is(o.Err, course.ErrNoMemory) }

// New returns an empty world.
func New() (*World, error) {
	arena, err := newArena()
	if err != nil {
		return nil, err
	}
	w := &World{arena: arena}
	w.library.Memory = arena
	w.library.Strict = true
	return w, nil
}

// Close frees the memory of the world.
func (w *World) Close() {
	w.arena.close()
	for _, space := range w.large {
		_ = unix.Munmap(space)
	}
}

// Live is the number of chunks that are allocated.
func (w *World) Live() int { return w.arena.live }

// Play makes the calls of one step.
func (w *World) Play(op trace.Op) Outcome {
	if !op.Kind.Many() {
		return w.play(op)
	}
	made := int64(0)
	for single := range op.Each {
		if w.play(single).Err == nil {
			made++
		}
	}
	return Outcome{Made: made}
}

func (w *World) play(op trace.Op) Outcome {
	w.arena.fail = op.Fail
	defer func() { w.arena.fail = 0 }()
	var e *course.Engine
	if op.Engine != trace.None {
		e = w.Engines[op.Engine]
	}
	var err error
	switch op.Kind {
	case trace.Init:
		return w.init(op)
	case trace.Create:
		_, err = w.library.Create(e, op.A, op.B)
	case trace.Fork:
		_, err = w.library.Fork(e, op.A, op.B)
	case trace.Append:
		err = w.library.Append(e, op.A, op.B)
	case trace.Free:
		err = w.library.Free(e, op.A)
	case trace.Destroy:
		if err = w.library.Destroy(e); err == nil {
			w.Engines[op.Engine] = nil
		}
	default:
		err = errors.New("not a call: " + op.Kind.String())
	}
	return Outcome{Err: err}
}

func (w *World) init(op trace.Op) Outcome {
	if op.A < 0 {
		_, err := w.library.Init(nil, 10*course.BlockSize)
		return Outcome{Err: err}
	}
	if op.Large() {
		return w.initLarge(op)
	}
	space := w.arena.take(int(op.A) + 2*Slack)
	pool := unsafe.Slice((*byte)(space), int(op.A)+2*Slack)
	Fill(pool)
	e, err := w.library.Init(unsafe.Add(space, Slack), uintptr(op.A))
	if err == nil {
		w.Engines[op.Engine], w.Pools[op.Engine], w.Ends[op.Engine] = e, pool, [2][]byte{}
	}
	return Outcome{Err: err}
}
