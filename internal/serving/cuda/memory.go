package cuda

import (
	"errors"
	"fmt"
	"unsafe"
)

// Memory is memory of the GPU. Kernels get its Pointer.
type Memory struct {
	context *Context
	pointer Pointer
	size    int
}

// A Pointer is an address in the GPU's memory, or the address at which the GPU sees pinned memory.
type Pointer uintptr

// MemoryLeft returns the free bytes and the total bytes of the GPU's memory.
func (c *Context) MemoryLeft() (free, total int, err error) {
	var f, t uintptr
	err = c.call("read how much GPU memory is free", cuMemGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))
	return int(f), int(t), err
}

// Alloc allocates GPU memory. Its contents are undefined. If there is not enough, the error says how
// much is free.
func (c *Context) Alloc(size int) (*Memory, error) {
	if size <= 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes of GPU memory: a size is positive", size)
	}
	m := &Memory{context: c, size: size}
	err := c.call(fmt.Sprintf("allocate %s of GPU memory", BytesText(size)), cuMemAlloc, uintptr(unsafe.Pointer(&m.pointer)), uintptr(size))
	if errors.Is(err, ErrOutOfMemory) {
		free, total, _ := c.MemoryLeft()
		return nil, fmt.Errorf("%w (%s of %s are free: use less memory for keys and values, a smaller model, or end other programs on this GPU)",
			err, BytesText(free), BytesText(total))
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Pointer returns the first address.
func (m *Memory) Pointer() Pointer { return m.pointer }

// Size returns the number of bytes.
func (m *Memory) Size() int { return m.size }

// Close frees the memory, after the work that was begun before.
func (m *Memory) Close() error {
	if m == nil {
		return nil
	}
	return m.context.call("free GPU memory", cuMemFree, uintptr(m.pointer))
}

// checkRange returns an error unless the bytes [offset, offset+size) lie in the memory.
func (m *Memory) checkRange(offset, size int) error {
	if offset < 0 || size < 0 || size > m.size-offset {
		return fmt.Errorf("bytes %d to %d are not in GPU memory of %d bytes", offset, offset+size, m.size)
	}
	return nil
}

// Write copies data to the memory and returns when the copy is complete. It does not wait for work in
// streams.
func (m *Memory) Write(offset int, data []byte) error {
	if err := m.checkRange(offset, len(data)); err != nil || len(data) == 0 {
		return err
	}
	const doing = "copy to the GPU"
	if err := m.context.call(doing, cuMemcpyHtoD, uintptr(m.pointer)+uintptr(offset), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data))); err != nil {
		return err
	}
	// The driver returns when it has copied the data to its own memory. It copies the data to the GPU later, in the
	// default stream ("API synchronization behavior" in the driver's manual). The streams that NewStream makes do not
	// wait for the default stream, so Write waits for it.
	return m.context.call(doing, cuStreamSynchronize, 0)
}

// Read copies from the memory to data. It does not wait for work in streams.
func (m *Memory) Read(offset int, data []byte) error {
	if err := m.checkRange(offset, len(data)); err != nil || len(data) == 0 {
		return err
	}
	return m.context.call("copy from the GPU", cuMemcpyDtoH, uintptr(unsafe.Pointer(&data[0])), uintptr(m.pointer)+uintptr(offset), uintptr(len(data)))
}

// Pinned is host memory that is never swapped out. Streams copy from and to it while the host
// computes, and kernels access it at its Pointer.
type Pinned struct {
	context *Context
	bytes   []byte
}

// AllocPinned allocates pinned memory, whose contents are undefined.
func (c *Context) AllocPinned(size int) (*Pinned, error) {
	if size <= 0 {
		return nil, fmt.Errorf("cannot allocate %d bytes of pinned memory: a size is positive", size)
	}
	var p unsafe.Pointer
	err := c.call(fmt.Sprintf("allocate %s of pinned memory", BytesText(size)), cuMemHostAlloc, uintptr(unsafe.Pointer(&p)), uintptr(size), hostAllocPortable)
	if err != nil {
		return nil, err
	}
	return &Pinned{context: c, bytes: unsafe.Slice((*byte)(p), size)}, nil
}

// Bytes returns the memory, which is valid until Close.
func (p *Pinned) Bytes() []byte { return p.bytes }

// Pointer returns the address for kernels.
func (p *Pinned) Pointer() Pointer { return Pointer(unsafe.Pointer(&p.bytes[0])) }

// Close frees the memory.
func (p *Pinned) Close() error {
	if p == nil {
		return nil
	}
	return p.context.call("free pinned memory", cuMemFreeHost, uintptr(p.Pointer()))
}

// BytesText writes a number of bytes as text. It uses GiB if there is at least one GiB, otherwise MiB if there is at
// least one MiB, and otherwise bytes.
func BytesText(n int) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
