package cuda

import (
	"errors"
	"fmt"
	"unsafe"
)

// A Stream is a queue of copies and kernels. The GPU executes them in order, independently of other
// streams and of Memory.Write and Memory.Read.
type Stream struct {
	context *Context
	handle  uintptr
}

// NewStream makes an empty stream.
func (c *Context) NewStream() (*Stream, error) {
	s := &Stream{context: c}
	if err := c.call("make a stream", cuStreamCreate, uintptr(unsafe.Pointer(&s.handle)), streamNonBlocking); err != nil {
		return nil, err
	}
	return s, nil
}

// StreamOf returns a stream of another program from its CUstream. The handle 0 is the default stream.
// The result must not be closed.
func (c *Context) StreamOf(handle uintptr) *Stream { return &Stream{c, handle} }

// Close removes the stream. Its work is still done.
func (s *Stream) Close() error {
	if s == nil {
		return nil
	}
	return s.context.call("close a stream", cuStreamDestroy, s.handle)
}

// Synchronize waits until the stream's work is done, and returns its error if it failed.
func (s *Stream) Synchronize() error {
	return s.context.call("wait for a stream", cuStreamSynchronize, s.handle)
}

// Upload starts copying bytes of pinned memory to the GPU. The bytes must not change until the copy is
// complete.
func (s *Stream) Upload(dst *Memory, offset int, src *Pinned, fromOffset, size int) error {
	return s.copy("copy to the GPU", cuMemcpyHtoDAsync, dst, offset, src, fromOffset, size)
}

// Download begins a copy from the GPU to pinned memory.
func (s *Stream) Download(dst *Pinned, offset int, src *Memory, fromOffset, size int) error {
	return s.copy("copy from the GPU", cuMemcpyDtoHAsync, dst, offset, src, fromOffset, size)
}

// Copy begins a copy inside the GPU.
func (s *Stream) Copy(dst *Memory, offset int, src *Memory, fromOffset, size int) error {
	return s.copy("copy inside the GPU", cuMemcpyDtoDAsync, dst, offset, src, fromOffset, size)
}

// region is a Memory or a Pinned.
type region interface {
	checkRange(offset, size int) error
	Pointer() Pointer
}

func (s *Stream) copy(doing string, f function, dst region, offset int, src region, fromOffset, size int) error {
	if err := errors.Join(dst.checkRange(offset, size), src.checkRange(fromOffset, size)); err != nil || size == 0 {
		return err
	}
	return s.context.call(doing, f, uintptr(dst.Pointer())+uintptr(offset), uintptr(src.Pointer())+uintptr(fromOffset), uintptr(size), s.handle)
}

// Fill starts setting bytes of the GPU's memory to a value.
func (s *Stream) Fill(dst *Memory, offset, size int, value byte) error {
	if err := dst.checkRange(offset, size); err != nil || size == 0 {
		return err
	}
	return s.context.call("fill GPU memory", cuMemsetD8Async, uintptr(dst.pointer)+uintptr(offset), uintptr(value), uintptr(size), s.handle)
}

func (p *Pinned) checkRange(offset, size int) error {
	if offset < 0 || size < 0 || size > len(p.bytes)-offset {
		return fmt.Errorf("bytes %d to %d are not in pinned memory of %d bytes", offset, offset+size, len(p.bytes))
	}
	return nil
}

// An Event marks a place in a stream.
type Event struct {
	context *Context
	handle  uintptr
}

// NewEvent creates an event. If timed is true, the event supports Elapsed but is slower.
func (c *Context) NewEvent(timed bool) (*Event, error) {
	if timed {
		return c.newEvent(0)
	}
	return c.newEvent(eventDisableTiming)
}

// NewBlockingEvent creates an event without times. A thread that waits for it sleeps. A thread that waits for another
// event uses a processor, but notices the end of the work earlier.
func (c *Context) NewBlockingEvent() (*Event, error) {
	return c.newEvent(eventDisableTiming | eventBlockingSync)
}

func (c *Context) newEvent(flags uintptr) (*Event, error) {
	e := &Event{context: c}
	if err := c.call("make an event", cuEventCreate, uintptr(unsafe.Pointer(&e.handle)), flags); err != nil {
		return nil, err
	}
	return e, nil
}

// Close removes the event.
func (e *Event) Close() error {
	if e == nil {
		return nil
	}
	return e.context.call("close an event", cuEventDestroy, e.handle)
}

// Record puts the event behind the stream's work so far.
func (s *Stream) Record(e *Event) error {
	return s.context.call("record an event", cuEventRecord, e.handle, s.handle)
}

// Wait makes later work in the stream wait for the event. The host does not wait.
func (s *Stream) Wait(e *Event) error {
	return s.context.call("make a stream wait for an event", cuStreamWaitEvent, s.handle, e.handle, 0)
}

// Synchronize waits until the work before the event is done.
func (e *Event) Synchronize() error {
	return e.context.call("wait for an event", cuEventSynchronize, e.handle)
}

// Done reports whether the work before the event is done.
func (e *Event) Done() (bool, error) {
	err := e.context.call("ask for an event", cuEventQuery, e.handle)
	if failed := (*Error)(nil); errors.As(err, &failed) && failed.Status == statusNotReady {
		return false, nil
	}
	return err == nil, err
}

// Elapsed returns the milliseconds between two events whose work is done.
func (e *Event) Elapsed(since *Event) (float32, error) {
	var ms float32
	err := e.context.call("measure the time between events", cuEventElapsedTime, uintptr(unsafe.Pointer(&ms)), since.handle, e.handle)
	return ms, err
}
