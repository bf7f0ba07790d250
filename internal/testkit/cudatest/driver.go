package cudatest

import (
	"os"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"
)

// A Driver is the loaded emulator of the CUDA driver library. It has one GPU of compute capability 9.0 with 1 GiB,
// unless a test calls Set.
//
// If the environment variable LLM_CUDA_DRIVER names a library, a Driver is this library, and kernels run on a GPU. Then
// Set skips the test; Hang, Hold, Fail, Order and Forget do nothing; Calls and Allocated return 0, and Failure returns "".
type Driver struct {
	Path string
	Real bool // not the emulator

	set     func(name string, value int) int32
	fail    func(function string, status int32) int32
	calls   func(function string) int32
	failure func() string
	reset   func() int32
	memory  func() int32

	watch      func(function uintptr) int32
	allocation func(index int32, size *uintptr) unsafe.Pointer
}

// Open loads the library, and resets it now and after the test. Tests that use the library cannot run in parallel.
func Open(t testing.TB) *Driver {
	t.Helper()
	if path := os.Getenv("LLM_CUDA_DRIVER"); path != "" {
		return realDriver(path)
	}
	d := &Driver{Path: Library(t)}
	library, err := purego.Dlopen(d.Path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	require.NoError(t, err)
	for name, function := range map[string]any{"cudatest_set": &d.set, "cudatest_fail": &d.fail, "cudatest_calls": &d.calls,
		"cudatest_failure": &d.failure, "cudatest_reset": &d.reset, "cudatest_allocated": &d.memory,
		"cudatest_watch": &d.watch, "cudatest_allocation": &d.allocation} {
		purego.RegisterLibFunc(function, library, name)
	}
	d.reset()
	t.Cleanup(func() {
		if failure := d.failure(); failure != "" && !t.Failed() {
			t.Error("the emulator:", failure)
		}
		d.reset()
	})
	return d
}

func realDriver(path string) *Driver {
	return &Driver{Path: path, Real: true, set: func(string, int) int32 { return 0 }, fail: func(string, int32) int32 { return 0 },
		calls: func(string) int32 { return 0 }, failure: func() string { return "" }, reset: func() int32 { return 0 }, memory: func() int32 { return 0 }}
}

// Set configures the machine. The names are "devices", "compute_capability" (80 means 8.0), "driver_version" (12040
// means CUDA 12.4), "memory" and "module_memory". "memory" is in bytes. "module_memory" is the number of bytes taken by
// each loaded module, 0 unless set.
func (d *Driver) Set(t testing.TB, name string, value int) {
	t.Helper()
	if d.Real {
		t.Skip("a GPU cannot be configured")
	}
	require.Zero(t, d.set(name, value), "%s is not configurable", name)
}

// Hang makes calls that wait for an event never return.
func (d *Driver) Hang() { d.set("hang", 1) }

// Hold makes calls that wait for an event wait until release is called.
func (d *Driver) Hold() (release func()) {
	d.set("hang", 2)
	return func() { d.set("hang", 0) }
}

// HangIn makes the next call of a function of the emulator never return. The parameter path is the path of the
// emulator, as in Driver.Path. A child process of a test calls HangIn, because it has no Driver.
func HangIn(path, function string) error {
	library, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return err
	}
	var fail func(function string, status int32) int32
	purego.RegisterLibFunc(&fail, library, "cudatest_fail")
	fail(function, -1)
	return nil
}

// Order chooses the order in which blocks, warps and lanes run: 0 is ascending, 1 descending, other numbers
// shuffled.
func (d *Driver) Order(order int) { d.set("order", order) }

// Fail makes the next call of a function return a status.
func (d *Driver) Fail(function string, status int) { d.fail(function, int32(status)) }

// Calls returns how often a function was called.
func (d *Driver) Calls(function string) int { return int(d.calls(function)) }

// Failure returns the first mistake of a kernel, or "". If there is one, the test fails at its end, unless it
// calls Forget.
func (d *Driver) Failure() string { return d.failure() }

// Forget resets the library: memory and handles are gone.
func (d *Driver) Forget() { d.reset() }

// Allocated returns the bytes of device memory in use.
func (d *Driver) Allocated() int { return int(d.memory()) }
