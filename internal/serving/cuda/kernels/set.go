package kernels

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"llmmemory/internal/serving/cuda"
)

//go:embed *.ptx
var compiled embed.FS

// A Type is that of elements in memory.
type Type int

// The types, as names of kernels end.
const (
	F16 Type = iota
	BF16
)

func (t Type) String() string { return [...]string{"f16", "bf16"}[t] }

// Bytes returns the size of an element.
func (t Type) Bytes() int { return 2 }

// in16 returns how many elements are 16 bytes.
func (t Type) in16() int { return 16 / t.Bytes() }

// A Set is all kernels, compiled by the driver for a context.
type Set struct {
	context *cuda.Context
	modules []*cuda.Module
	kernels map[string]*cuda.Kernel
}

// Load compiles the kernels.
func Load(c *cuda.Context) (*Set, error) {
	set := &Set{context: c, kernels: map[string]*cuda.Kernel{}}
	err := c.Do(func() error { return set.load() })
	if err != nil {
		return nil, errors.Join(err, set.Close())
	}
	return set, nil
}

func (set *Set) load() error {
	names, err := fs.Glob(compiled, "*.ptx")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(compiled, name)
		if err != nil {
			return err
		}
		m, err := set.context.LoadModule(strings.TrimSuffix(name, ".ptx"), string(text))
		if err != nil {
			return err
		}
		set.modules = append(set.modules, m)
		for _, kernel := range m.Names() {
			if set.kernels[kernel], err = m.Kernel(kernel); err != nil {
				return err
			}
		}
	}
	return nil
}

// Close removes the kernels from the GPU.
func (set *Set) Close() error {
	var errs []error
	for _, m := range set.modules {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// launch puts a kernel into a stream.
func (set *Set) launch(s *cuda.Stream, name string, shape cuda.Shape, arguments ...any) error {
	k, ok := set.kernels[name]
	if !ok {
		return fmt.Errorf("there is no kernel %s", name)
	}
	return k.Launch(s, shape, arguments...)
}
