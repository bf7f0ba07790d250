package cudatest

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"llmmemory/internal/testkit/ptx"
)

// An Interpreter runs the PTX of the kernels that a Driver launches, beside the sources compiled for the host.
type Interpreter struct {
	t       testing.TB
	driver  *Driver
	kernels map[string]*ptx.Kernel
	texts   map[string]string // of the kernels
	want    []ptx.Area        // memory as the PTX of the current launch has left it
	failed  bool
}

// Interpret makes each launch run the PTX, too. The test fails if the PTX leaves other bytes in memory than the sources
// compiled for the host. It skips the test on a GPU.
func (d *Driver) Interpret(t testing.TB) *Interpreter {
	t.Helper()
	if d.Real {
		t.Skip("a GPU runs the PTX itself")
	}
	i := &Interpreter{t: t, driver: d, kernels: map[string]*ptx.Kernel{}, texts: map[string]string{}}
	watching = i
	d.watch(watcher())
	t.Cleanup(func() {
		d.watch(0)
		watching = nil
	})
	return i
}

// Kernel returns the kernel of a name with what its runs have counted, or nil if it has not run.
func (i *Interpreter) Kernel(name string) *ptx.Kernel { return i.kernels[name] }

// watching is the interpreter that the emulator calls. Only one test at a time uses the emulator.
var watching *Interpreter

// watcher makes the function that C calls. A process can make only a limited number of them, so it makes one.
var watcher = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(text, name *byte, shape *[6]int32, arguments *[maxArguments]unsafe.Pointer, ran int32) uintptr {
		if watching == nil || watching.failed {
			return 0
		}
		step := func() error { return watching.run(cString(text), cString(name), shape, arguments) }
		if ran != 0 {
			step = func() error { return watching.compare(cString(name)) }
		}
		if err := step(); err != nil {
			watching.failed = true
			watching.t.Error("the PTX of", err)
		}
		return 0
	})
})

// maxArguments is the emulator's MOST_ARGUMENTS.
const maxArguments = 48

func cString(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return unsafe.String(p, n)
}

// run runs the PTX on a copy of the memory.
func (i *Interpreter) run(text, name string, shape *[6]int32, arguments *[maxArguments]unsafe.Pointer) error {
	k := i.kernels[name]
	if k == nil || i.texts[name] != text {
		var err error
		if k, err = ptx.Compile(text, name); err != nil {
			return err
		}
		i.kernels[name], i.texts[name] = k, string([]byte(text))
	}
	l := ptx.Launch{Grid: [3]int{int(shape[0]), int(shape[1]), int(shape[2])}, Threads: int(shape[3]), Shared: int(shape[4]), Descending: shape[5]%2 == 1}
	for n, size := range k.ParameterSizes() {
		l.Parameters = append(l.Parameters, unsafe.Slice((*byte)(arguments[n]), size))
	}
	i.want = i.driver.areas()
	for n := range i.want {
		i.want[n].Bytes = slices.Clone(i.want[n].Bytes)
	}
	l.Memory = i.want
	return k.Run(l)
}

// areas returns the memory of the device and the pinned memory.
func (d *Driver) areas() []ptx.Area {
	var all []ptx.Area
	for {
		var size uintptr
		p := d.allocation(int32(len(all)), &size)
		if p == nil {
			return all
		}
		all = append(all, ptx.Area{Address: uint64(uintptr(p)), Bytes: unsafe.Slice((*byte)(p), size)})
	}
}

// compare compares the memory with what the PTX has left in its copy.
func (i *Interpreter) compare(name string) error {
	for n, area := range i.driver.areas() {
		want := i.want[n]
		if bytes.Equal(area.Bytes, want.Bytes) {
			continue
		}
		at := 0
		for area.Bytes[at] == want.Bytes[at] {
			at++
		}
		at -= at % 4
		end := min(at+16, len(want.Bytes))
		return fmt.Errorf("%s: %d bytes into an allocation of %d it has written % x, the sources % x", name, at, len(want.Bytes), want.Bytes[at:end], area.Bytes[at:end])
	}
	return nil
}
