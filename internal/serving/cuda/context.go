package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

// A Context is one program's use of one GPU. The driver binds a context to a thread, and calls from another thread
// fail. Therefore NewContext starts a goroutine that is locked to a thread. The methods of the Context, and of
// everything created from it, may be called from any goroutine: they pass their calls to this goroutine and wait.
// Inside Do, calls are made directly, which saves time if there are many. A Context that Current has returned has no
// such goroutine.
//
// Everything created from a context must be closed before the context.
type Context struct {
	driver *Driver
	device Device
	work   chan func()
	ended  bool          // set on the thread
	closed chan struct{} // closed when the thread ends
	thread int           // its number in Linux; 0 means every thread, with the context that is current there
}

// NewContext begins to use a GPU. Close ends it.
func (d *Driver) NewContext(ordinal int) (*Context, error) {
	device, err := d.find(ordinal)
	if err != nil {
		return nil, err
	}
	c := &Context{driver: d, device: device, work: make(chan func()), closed: make(chan struct{})}
	ready := make(chan error)
	go c.run(ready)
	if err := <-ready; err != nil {
		return nil, err
	}
	return c, nil
}

// Current returns a Context for the driver context that another program has made current on the calling thread. The new
// Context has no thread of its own. A call runs on its caller's thread, and the same driver context must be current
// there.
func (d *Driver) Current() (*Context, error) {
	var handle int32
	if err := d.call("find the thread's context", cuCtxGetDevice, uintptr(unsafe.Pointer(&handle))); err != nil {
		if e := (*Error)(nil); errors.As(err, &e) && e.Status == statusInvalidContext {
			return nil, fmt.Errorf("%w: make a context current on this thread before", err)
		}
		return nil, err
	}
	devices, err := d.Devices()
	if err != nil {
		return nil, err
	}
	for ordinal, g := range devices {
		if g.handle == handle {
			device, err := d.find(ordinal)
			return &Context{driver: d, device: device}, err
		}
	}
	return nil, fmt.Errorf("%w: the driver does not list the device %d of the thread's context", ErrNoGPU, handle)
}

// mayCall reports whether the calling thread can call the driver.
func (c *Context) mayCall() bool { return c.thread == 0 || syscall.Gettid() == c.thread }

// run is the goroutine that makes the context's calls, locked to its thread. It returns without unlocking, so
// that the Go runtime ends the thread and no other goroutine gets a thread with the driver's context.
func (c *Context) run(ready chan<- error) {
	runtime.LockOSThread()
	c.thread = syscall.Gettid()
	doing := fmt.Sprintf("use GPU %d (%s)", c.device.Ordinal, c.device.Name)
	var handle uintptr
	err := advised(c.driver.call(doing, cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&handle)), uintptr(c.device.handle)))
	if err == nil {
		if err = c.driver.call(doing, cuCtxSetCurrent, handle); err != nil {
			err = errors.Join(err, c.driver.call(doing, cuDevicePrimaryCtxRelease, uintptr(c.device.handle)))
		}
	}
	ready <- err
	if err != nil {
		return
	}
	for !c.ended {
		(<-c.work)()
	}
	close(c.closed)
}

// Close ends the use of the GPU. Everything created from the context must be closed before. Close does
// not end a context of another program.
func (c *Context) Close() error {
	if c.thread == 0 {
		return nil
	}
	return c.Do(func() error {
		c.ended = true
		doing := fmt.Sprintf("end the use of GPU %d", c.device.Ordinal)
		return errors.Join(c.driver.call(doing, cuCtxSetCurrent, 0), c.driver.call(doing, cuDevicePrimaryCtxRelease, uintptr(c.device.handle)))
	})
}

// Device returns the GPU.
func (c *Context) Device() Device { return c.device }

// Do runs f on the context's thread and returns its error. f may call Do. After Close, Do returns an error.
func (c *Context) Do(f func() error) error {
	if c.mayCall() {
		return f()
	}
	done := make(chan error, 1)
	select {
	case c.work <- func() { done <- f() }:
		return <-done
	case <-c.closed:
		return fmt.Errorf("the context of GPU %d is closed", c.device.Ordinal)
	}
}

// call calls the driver on the context's thread.
//
//go:uintptrescapes
func (c *Context) call(doing string, f function, arguments ...uintptr) error {
	if c.mayCall() {
		return c.driver.call(doing, f, arguments...)
	}
	return c.Do(func() error { return c.driver.call(doing, f, arguments...) })
}

// Synchronize waits for all work of the GPU.
func (c *Context) Synchronize() error { return c.call("wait for the GPU", cuCtxSynchronize) }
