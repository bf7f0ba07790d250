package cuda

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Library is the name of NVIDIA's driver on Linux.
const Library = "libcuda.so.1"

// Reasons why a machine cannot run the kernels.
var (
	ErrNoDriver    = errors.New("no NVIDIA driver")
	ErrNoGPU       = errors.New("no GPU")
	ErrOldGPU      = errors.New("the GPU is too old")
	ErrOldDriver   = errors.New("the NVIDIA driver is too old")
	ErrOutOfMemory = errors.New("out of GPU memory")
)

// A Driver is the loaded and initialized driver.
type Driver struct {
	addresses [functions]uintptr
	version   int
}

// Open loads the driver and initializes it. The parameter library is the file name of the driver. On Linux, the file
// name of NVIDIA's driver is the constant Library.
func Open(library string) (*Driver, error) {
	runtime.LockOSThread() // dlerror returns the last error of its thread
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil && !strings.HasPrefix(err.Error(), library+": cannot open shared object file: No such file") {
		return nil, fmt.Errorf("%w: %s was found, but cannot be loaded: install NVIDIA's driver again (%v)", ErrNoDriver, library, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: cannot load %s: install NVIDIA's driver; in a container, start it with access to the GPUs (%v)", ErrNoDriver, library, err)
	}
	d := &Driver{}
	for f, symbol := range symbols {
		if d.addresses[f], err = purego.Dlsym(handle, symbol); err != nil && f == int(cuInit) {
			return nil, fmt.Errorf("%w: %s has no %s: install NVIDIA's driver again", ErrNoDriver, library, symbol)
		} else if err != nil {
			return nil, fmt.Errorf("%w: %s has no %s: install release %s or newer", ErrOldDriver, library, symbol, oldestDriverOfRelease)
		}
	}
	var version int32
	if err := d.call("read the driver's version", cuDriverGetVersion, uintptr(unsafe.Pointer(&version))); err != nil {
		return nil, err
	}
	if d.version = int(version); d.version < oldestDriver {
		return nil, fmt.Errorf("%w: it supports CUDA %d.%d: install release %s (CUDA 11.4) or newer", ErrOldDriver, version/1000, version%1000/10, oldestDriverOfRelease)
	}
	if err := d.call("initialize the driver", cuInit, 0); err != nil {
		return nil, advised(err)
	}
	return d, nil
}

// advised adds what to do to an error of the calls that begin to use the driver or a GPU.
func advised(err error) error {
	e := (*Error)(nil)
	switch {
	case !errors.As(err, &e):
	case e.Status == statusNoDevice:
		return fmt.Errorf("%w: %w: nvidia-smi lists the GPUs that the driver sees; CUDA_VISIBLE_DEVICES may hide some", ErrNoGPU, err)
	case e.Status == statusDriverMismatch:
		return fmt.Errorf("%w: the library and the kernel's module are of different releases: restart the machine; in a container, use the host's library", err)
	case e.Status == statusCompatNotSupported:
		return fmt.Errorf("%w: remove CUDA's compatibility library (cuda-compat) from the container, or install a newer driver", err)
	case e.Status == statusSystemNotReady:
		return fmt.Errorf("%w: start NVIDIA's fabric manager (nvidia-fabricmanager), which GPUs that are connected by NVSwitch need", err)
	case e.Status == statusDeviceUnavailable:
		return fmt.Errorf("%w: end the program that uses the GPU in exclusive mode, or, with MIG, create an instance (nvidia-smi shows both)", err)
	case e.Status == statusStubLibrary:
		return fmt.Errorf("%w: the library is the CUDA toolkit's stub: remove its folder from LD_LIBRARY_PATH, so that the driver's is found", err)
	case e.Status == statusUnknown:
		return fmt.Errorf("%w: nvidia-smi shows whether the driver works; if its kernel module was replaced, restart the machine", err)
	}
	return err
}

// Version returns the version of CUDA that the driver supports: 12040 is 12.4.
func (d *Driver) Version() int { return d.version }

// call calls a function of the driver; doing completes the sentence "cannot ...". Pointers may be passed as
// uintptr(unsafe.Pointer(p)) in the call's arguments.
//
//go:uintptrescapes
func (d *Driver) call(doing string, f function, arguments ...uintptr) error {
	status, _, _ := purego.SyscallN(d.addresses[f], arguments...)
	if int32(status) == 0 {
		return nil
	}
	return d.failed(doing, f, int32(status))
}

// An Error is a call of the driver that failed.
type Error struct {
	Doing    string // what the call was for
	Function string
	Status   int
	Name     string // the driver's, as CUDA_ERROR_INVALID_VALUE
	Text     string // the driver's
}

func (e *Error) Error() string {
	return fmt.Sprintf("cannot %s: %s returned %s (%d): %s", e.Doing, e.Function, e.Name, e.Status, e.Text)
}

// Is makes errors.Is find ErrOutOfMemory, ErrOldDriver and ErrOldGPU.
func (e *Error) Is(target error) bool {
	return target == ErrOutOfMemory && e.Status == statusOutOfMemory || target == ErrOldDriver && e.Status == statusUnsupportedPTX ||
		target == ErrOldGPU && e.Status == statusNoBinaryForGPU
}

func (d *Driver) failed(doing string, f function, status int32) error {
	text := func(f function, unknown string) string {
		var chars *byte
		result, _, _ := purego.SyscallN(d.addresses[f], uintptr(status), uintptr(unsafe.Pointer(&chars)))
		if int32(result) != 0 || chars == nil {
			return unknown
		}
		end := 0
		for *(*byte)(unsafe.Add(unsafe.Pointer(chars), end)) != 0 {
			end++
		}
		return string(unsafe.Slice(chars, end))
	}
	return &Error{Doing: doing, Function: symbols[f], Status: int(status), Name: text(cuGetErrorName, "an unknown error"),
		Text: text(cuGetErrorString, "the driver does not describe it")}
}
