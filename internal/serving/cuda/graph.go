package cuda

import (
	"errors"
	"unsafe"
)

// A Graph is captured work that is submitted as a whole, with one call of the driver.
type Graph struct {
	context *Context
	handle  uintptr
}

// Capture makes a graph of the work that f submits to the stream. Work in other streams is also captured if it waits
// for the stream's events. None of this work runs. f must not allocate or free GPU memory, and must not wait for the
// GPU.
func (s *Stream) Capture(f func() error) (*Graph, error) {
	g := &Graph{context: s.context}
	return g, s.context.Do(func() error {
		d := s.context.driver
		if err := d.call("begin to capture a stream", cuStreamBeginCapture, s.handle, captureThreadLocal); err != nil {
			return err
		}
		var captured uintptr
		err := f()
		err = errors.Join(err, d.call("capture a stream", cuStreamEndCapture, s.handle, uintptr(unsafe.Pointer(&captured))))
		if captured == 0 {
			return err
		}
		if err == nil {
			err = d.call("make a graph", cuGraphInstantiateWithFlags, uintptr(unsafe.Pointer(&g.handle)), captured, 0)
		}
		return errors.Join(err, d.call("close a captured graph", cuGraphDestroy, captured))
	})
}

// Launch puts the graph's work into a stream.
func (g *Graph) Launch(s *Stream) error {
	return g.context.call("launch a graph", cuGraphLaunch, g.handle, s.handle)
}

// Close removes the graph.
func (g *Graph) Close() error {
	if g == nil {
		return nil
	}
	return g.context.call("close a graph", cuGraphExecDestroy, g.handle)
}
