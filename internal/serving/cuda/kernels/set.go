package kernels

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"llmmemory/internal/serving/cuda"
)

//go:embed *.ptx
var compiled embed.FS

// A Type is a type of elements in memory.
type Type int

// The types, as names of kernels end.
const (
	F16 Type = iota
	BF16
)

var typeNames = [...]string{"f16", "bf16"}

func (t Type) String() string {
	if t.check("") != nil {
		return fmt.Sprintf("Type(%d)", int(t))
	}
	return typeNames[t]
}

func (t Type) check(kernel string) error {
	if t < 0 || int(t) >= len(typeNames) {
		return fmt.Errorf("%s of elements of type %d: there are kernels for F16 and BF16", kernel, int(t))
	}
	return nil
}

// Bytes returns the size of an element.
func (t Type) Bytes() int { return 2 }

// A CacheType is a type of keys and values in blocks.
type CacheType int

// The types of keys and values. Numbers of 8 bits have no scales: E4M3 reaches to 448, E5M2 to 57344.
const (
	CacheAuto CacheType = iota // the Type of the queries
	CacheE4M3
	CacheE5M2
)

var cacheNames = [...]string{"auto", "e4m3", "e5m2"}

func (c CacheType) String() string {
	if c.check("") != nil {
		return fmt.Sprintf("CacheType(%d)", int(c))
	}
	return cacheNames[c]
}

// Bytes returns the size of an element of keys and values. For CacheAuto, this is the size of an element of the
// queries, whose type is t.
func (c CacheType) Bytes(t Type) int {
	if c == CacheAuto {
		return t.Bytes()
	}
	return 1
}

// fractionBits returns the number of bits of the type's fraction, or 0 for CacheAuto.
func (c CacheType) fractionBits() int32 { return [...]int32{0, 3, 2}[c] }

func (c CacheType) check(kernel string) error {
	if c < 0 || int(c) >= len(cacheNames) {
		return fmt.Errorf("%s with keys and values of type %d: there are kernels for CacheAuto, CacheE4M3 and CacheE5M2", kernel, int(c))
	}
	return nil
}

// in16 returns how many elements fit into 16 bytes.
func (t Type) in16() int { return 16 / t.Bytes() }

// A Set contains all kernels for a context. The driver compiles a file when one of its kernels is first launched or
// passed to Needs. This must not happen during the capture of a stream.
type Set struct {
	context *cuda.Context
	files   map[string]string // of each kernel

	mu      sync.Mutex
	modules map[string]*cuda.Module // of files
	kernels map[string]*kernel
}

// A kernel is a kernel that the driver has compiled.
type kernel struct {
	*cuda.Kernel
	shared int // bytes of dynamic shared memory that AllowShared allowed
}

var entry = regexp.MustCompile(`(?m)^\.visible \.entry (\w+)\(`)

// Load finds the kernels.
func Load(c *cuda.Context) (*Set, error) {
	set := &Set{context: c, files: map[string]string{}, modules: map[string]*cuda.Module{}, kernels: map[string]*kernel{}}
	names, err := fs.Glob(compiled, "*.ptx")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := compiled.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, found := range entry.FindAllSubmatch(text, -1) {
			set.files[string(found[1])] = name
		}
	}
	return set, nil
}

// Names returns the names of all kernels, sorted.
func (set *Set) Names() []string { return slices.Sorted(maps.Keys(set.files)) }

// Needs returns what a kernel uses, which the driver compiles first.
func (set *Set) Needs(name string) (cuda.Needs, error) {
	k, err := set.kernel(name, 0)
	if err != nil {
		return cuda.Needs{}, err
	}
	return k.Needs()
}

// Close removes the kernels from the GPU.
func (set *Set) Close() error {
	set.mu.Lock()
	defer set.mu.Unlock()
	var errs []error
	for _, m := range set.modules {
		errs = append(errs, m.Close())
	}
	clear(set.modules)
	clear(set.kernels)
	return errors.Join(errs...)
}

// kernel returns a compiled kernel that may use the given amount of shared memory.
func (set *Set) kernel(name string, shared int) (*cuda.Kernel, error) {
	set.mu.Lock()
	defer set.mu.Unlock()
	k, ok := set.kernels[name]
	if !ok {
		m, err := set.module(name)
		if err != nil {
			return nil, err
		}
		found, err := m.Kernel(name)
		if err != nil {
			return nil, err
		}
		k = &kernel{Kernel: found}
		set.kernels[name] = k
	}
	if shared > k.shared {
		if err := k.AllowShared(shared); err != nil {
			return nil, err
		}
		k.shared = shared
	}
	return k.Kernel, nil
}

// module returns the compiled file of a kernel. set.mu is held.
func (set *Set) module(kernel string) (*cuda.Module, error) {
	file, ok := set.files[kernel]
	if !ok {
		return nil, fmt.Errorf("there is no kernel %s", kernel)
	}
	m, ok := set.modules[file]
	if ok {
		return m, nil
	}
	text, err := compiled.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if m, err = set.context.LoadModule(strings.TrimSuffix(file, ".ptx"), string(text)); err != nil {
		return nil, err
	}
	set.modules[file] = m
	return m, nil
}

// launch puts a kernel into a stream.
func (set *Set) launch(s *cuda.Stream, name string, shape cuda.Shape, arguments ...any) error {
	k, err := set.kernel(name, shape.Shared)
	if err != nil {
		return err
	}
	return k.Launch(s, shape, arguments...)
}
