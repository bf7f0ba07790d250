package gpu

import (
	"errors"
	"fmt"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
)

// A Device is a GPU that this process uses.
type Device struct {
	context *cuda.Context
	mover   *cuda.Context // the same context of the driver, with a thread that no step keeps waiting
	set     *kernels.Set
	stream  *cuda.Stream // of weights and of steps
	free    int          // bytes of free memory after Open
}

// Open opens a GPU. The parameter library is the file of NVIDIA's driver, usually cuda.Library.
func Open(library string, ordinal int) (*Device, error) {
	driver, err := cuda.Open(library)
	if err != nil {
		return nil, err
	}
	d := &Device{}
	if d.context, err = driver.NewContext(ordinal); err != nil {
		return nil, err
	}
	d.mover, err = driver.NewContext(ordinal)
	if err == nil {
		d.set, err = kernels.Load(d.context)
	}
	if err == nil {
		d.stream, err = d.context.NewStream()
	}
	if err == nil {
		d.free, _, err = d.context.MemoryLeft()
	}
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close ends the use of the GPU. Weights and runners must be closed before.
func (d *Device) Close() error {
	errs := []error{d.stream.Close()}
	if d.set != nil {
		errs = append(errs, d.set.Close())
	}
	if d.mover != nil {
		errs = append(errs, d.mover.Close())
	}
	return errors.Join(append(errs, d.context.Close())...)
}

// String names the GPU.
func (d *Device) String() string {
	g := d.context.Device()
	return fmt.Sprintf("GPU %d (%s)", g.Ordinal, g.Name)
}

// Kind names the generation of the GPU. GPUs of different kinds can round differently.
func (d *Device) Kind() string {
	g := d.context.Device()
	return fmt.Sprintf("CUDA, compute capability %d.%d", g.Major, g.Minor)
}

// memories is memory that is freed together.
type memories []*cuda.Memory

func (list memories) close() error {
	var errs []error
	for _, m := range list {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// A launcher allocates memory on a GPU and adds work to its stream. After the first error, its methods do nothing.
type launcher struct {
	context   *cuda.Context
	set       *kernels.Set
	stream    *cuda.Stream
	allocated memories
	err       error
}

func (d *Device) launcher() launcher {
	return launcher{context: d.context, set: d.set, stream: d.stream}
}

func (l *launcher) try(work func() error) {
	if l.err == nil {
		l.err = work()
	}
}

// alloc allocates memory. After an error, it returns memory of no bytes.
func (l *launcher) alloc(size int) *cuda.Memory {
	if l.err == nil {
		var m *cuda.Memory
		if m, l.err = l.context.Alloc(size); l.err == nil {
			l.allocated = append(l.allocated, m)
			return m
		}
	}
	return &cuda.Memory{}
}

type kernel interface {
	Launch(*kernels.Set, *cuda.Stream) error
}

func (l *launcher) launch(k kernel) {
	l.try(func() error { return k.Launch(l.set, l.stream) })
}
