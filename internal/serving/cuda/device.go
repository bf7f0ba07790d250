package cuda

import (
	"bytes"
	"fmt"
	"unsafe"
)

// A Device is a GPU of this machine.
type Device struct {
	Ordinal         int
	Name            string
	Major, Minor    int // the compute capability: 8.0 is an A100, 9.0 an H100
	Memory          int // bytes
	Multiprocessors int
	SharedMemory    int // bytes that a block may have at most
	handle          int32
}

// Devices returns the GPUs in the driver's order.
func (d *Driver) Devices() ([]Device, error) {
	var count int32
	if err := d.call("count the GPUs", cuDeviceGetCount, uintptr(unsafe.Pointer(&count))); err != nil {
		return nil, err
	}
	devices := make([]Device, count)
	for i := range devices {
		var err error
		if devices[i], err = d.device(i); err != nil {
			return nil, err
		}
	}
	return devices, nil
}

func (d *Driver) device(ordinal int) (Device, error) {
	doing := fmt.Sprintf("describe GPU %d", ordinal)
	g := Device{Ordinal: ordinal}
	var name [256]byte
	var memory uintptr
	if err := d.call(doing, cuDeviceGet, uintptr(unsafe.Pointer(&g.handle)), uintptr(ordinal)); err != nil {
		return g, err
	}
	if err := d.call(doing, cuDeviceGetName, uintptr(unsafe.Pointer(&name)), uintptr(len(name)), uintptr(g.handle)); err != nil {
		return g, err
	}
	if err := d.call(doing, cuDeviceTotalMem, uintptr(unsafe.Pointer(&memory)), uintptr(g.handle)); err != nil {
		return g, err
	}
	before, _, _ := bytes.Cut(name[:], []byte{0})
	g.Name, g.Memory = string(before), int(memory)
	for attribute, dst := range map[int]*int{attributeMajor: &g.Major, attributeMinor: &g.Minor, attributeMultiprocessors: &g.Multiprocessors,
		attributeSharedMemory: &g.SharedMemory} {
		var value int32
		if err := d.call(doing, cuDeviceGetAttribute, uintptr(unsafe.Pointer(&value)), uintptr(attribute), uintptr(g.handle)); err != nil {
			return g, err
		}
		*dst = int(value)
	}
	return g, nil
}

// find returns the GPU with the given number, or an error if the kernels cannot run on it.
func (d *Driver) find(ordinal int) (Device, error) {
	devices, err := d.Devices()
	if err != nil {
		return Device{}, err
	}
	if ordinal < 0 || ordinal >= len(devices) {
		return Device{}, fmt.Errorf("%w: there is no GPU %d among %d: numbers begin at 0", ErrNoGPU, ordinal, len(devices))
	}
	g := devices[ordinal]
	if g.Major < oldestComputeMajor {
		return g, fmt.Errorf("%w: GPU %d (%s) has compute capability %d.%d: use one with 8.0 or higher (Ampere, 2020, or newer)", ErrOldGPU, ordinal, g.Name, g.Major, g.Minor)
	}
	return g, nil
}
