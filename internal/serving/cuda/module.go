package cuda

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unsafe"
)

// A Module is PTX that the driver has compiled for the GPU. The driver caches the result in ~/.nv.
type Module struct {
	context *Context
	handle  uintptr
	ptx     string
}

// LoadModule compiles PTX. If the driver's compiler refuses the PTX, the error has the compiler's text. If the driver
// is too old for the PTX, the error wraps ErrOldDriver.
func (c *Context) LoadModule(name, ptx string) (*Module, error) {
	m := &Module{context: c, ptx: ptx}
	text, log := append([]byte(ptx), 0), make([]byte, 4096)
	options := [...]int32{jitErrorLog, jitErrorLogSize}
	values := struct {
		log  unsafe.Pointer
		size uintptr
	}{unsafe.Pointer(&log[0]), uintptr(len(log))}
	err := c.call("load the kernels of "+name, cuModuleLoadDataEx, uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(&text[0])),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options)), uintptr(unsafe.Pointer(&values)))
	if e, ok := err.(*Error); ok && e.Status == statusUnsupportedPTX {
		return nil, fmt.Errorf("%w: install NVIDIA's driver of release %s or newer", err, oldestDriverOfRelease)
	}
	if err != nil {
		log, _, _ = bytes.Cut(log, []byte{0})
		if said := strings.TrimSpace(string(log)); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return nil, err
	}
	return m, nil
}

// Close removes the module and its kernels.
func (m *Module) Close() error { return m.context.call("close a module", cuModuleUnload, m.handle) }

// A Kernel is a function of a module that runs on the GPU.
type Kernel struct {
	context    *Context
	name       string
	handle     uintptr
	parameters []int // their sizes in bytes
}

var parameter = regexp.MustCompile(`\.param (?:\.align \d+ )?\.[a-z](\d+) \w+(?:\[(\d+)\])?`)

// Kernel returns a kernel of the module.
func (m *Module) Kernel(name string) (*Kernel, error) {
	k := &Kernel{context: m.context, name: name}
	_, after, found := strings.Cut(m.ptx, ".entry "+name+"(")
	if !found {
		return nil, fmt.Errorf("the PTX has no kernel %s", name)
	}
	list, _, _ := strings.Cut(after, ")")
	for _, p := range parameter.FindAllStringSubmatch(list, -1) {
		var bits, elements int
		_, _ = fmt.Sscan(p[1], &bits)
		if _, err := fmt.Sscan(p[2], &elements); err != nil {
			elements = 1
		}
		k.parameters = append(k.parameters, bits/8*elements)
	}
	text := append([]byte(name), 0)
	if err := m.context.call("find the kernel "+name, cuModuleGetFunction, uintptr(unsafe.Pointer(&k.handle)), m.handle, uintptr(unsafe.Pointer(&text[0]))); err != nil {
		return nil, err
	}
	return k, nil
}

// Needs lists what a compiled kernel uses. A thread uses Registers registers and Local bytes of local memory. A block
// uses Shared bytes of static shared memory and has at most MaxThreads threads. Local memory holds local arrays, and
// values that did not fit into registers. It is slow, so a good kernel uses no local memory.
type Needs struct {
	Registers, Local, Shared, MaxThreads int
}

// Needs returns what the compiled kernel uses.
func (k *Kernel) Needs() (Needs, error) {
	var n Needs
	for attribute, dst := range map[int]*int{kernelRegisters: &n.Registers, kernelLocalBytes: &n.Local, kernelSharedBytes: &n.Shared, kernelMaxThreads: &n.MaxThreads} {
		var value int32
		if err := k.context.call("describe the kernel "+k.name, cuFuncGetAttribute, uintptr(unsafe.Pointer(&value)), uintptr(attribute), k.handle); err != nil {
			return n, err
		}
		*dst = int(value)
	}
	return n, nil
}

// AllowShared allows launches with up to size bytes of dynamic shared memory. Otherwise a kernel may have 48
// KiB of shared memory, including the memory that it declares itself. AllowShared also asks for as much shared memory of
// a multiprocessor as there is, so that several blocks run at a time; the L1 cache has the rest.
func (k *Kernel) AllowShared(size int) error {
	doing := fmt.Sprintf("allow the kernel %s %d bytes of shared memory", k.name, size)
	if err := k.context.call(doing, cuFuncSetAttribute, k.handle, kernelDynamicShared, uintptr(size)); err != nil {
		return err
	}
	return k.context.call(doing, cuFuncSetAttribute, k.handle, kernelSharedCarveout, 100)
}

// A Shape gives the number of blocks in each dimension, and the number of threads in each block.
type Shape struct {
	X, Y, Z int // blocks; for Y and Z, 0 counts as 1
	Threads int // of a block, a multiple of 32
	Shared  int // bytes of dynamic shared memory of a block
}

// Launch adds a run of the kernel to a stream. Each argument has the type of the kernel's parameter:
// Pointer, int32, uint32, uint64, float32, or a struct of these. The arguments are copied. The call is made on the thread
// of the stream's context.
func (k *Kernel) Launch(s *Stream, shape Shape, arguments ...any) error {
	values, err := k.pack(arguments)
	if err != nil {
		return err
	}
	if shape.X < 1 || shape.X > maxBlocksX || shape.Y < 0 || shape.Y > maxBlocksYZ || shape.Z < 0 || shape.Z > maxBlocksYZ {
		return fmt.Errorf("the kernel %s with %d x %d x %d blocks: there may be 1 to %d x %d x %d", k.name, shape.X, shape.Y, shape.Z, maxBlocksX, maxBlocksYZ, maxBlocksYZ)
	}
	dimension := func(n int) uintptr { return uintptr(max(n, 1)) }
	return s.context.call("launch the kernel "+k.name, cuLaunchKernel, k.handle, dimension(shape.X), dimension(shape.Y), dimension(shape.Z),
		uintptr(shape.Threads), 1, 1, uintptr(shape.Shared), s.handle, uintptr(unsafe.Pointer(unsafe.SliceData(values))), 0)
}

// pack copies the arguments and returns pointers to the copies. It compares their sizes with those of
// the parameters.
func (k *Kernel) pack(arguments []any) ([]unsafe.Pointer, error) {
	if len(arguments) != len(k.parameters) {
		return nil, fmt.Errorf("the kernel %s has %d parameters, not %d", k.name, len(k.parameters), len(arguments))
	}
	values := make([]unsafe.Pointer, len(arguments))
	for i, a := range arguments {
		v := reflect.ValueOf(a)
		switch v.Kind() {
		case reflect.Invalid:
			return nil, fmt.Errorf("argument %d of the kernel %s is nil", i, k.name)
		case reflect.Pointer, reflect.Slice, reflect.String, reflect.Interface, reflect.Map, reflect.Func, reflect.Chan:
			return nil, fmt.Errorf("argument %d of the kernel %s is of type %T, not a number or cuda.Pointer", i, k.name, a)
		}
		if size := int(v.Type().Size()); size != k.parameters[i] {
			return nil, fmt.Errorf("argument %d of the kernel %s is of type %T with %d bytes, the parameter has %d", i, k.name, a, size, k.parameters[i])
		}
		p := reflect.New(v.Type())
		p.Elem().Set(v)
		values[i] = p.UnsafePointer()
	}
	return values, nil
}
