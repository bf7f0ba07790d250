// Package cuda calls NVIDIA's driver: GPUs, memory, streams, events, graphs, and kernels in PTX. It
// needs neither cgo nor the CUDA toolkit. It opens the driver's library at run time, so a program with
// this package also runs on machines without the library.
//
// Every call is checked. An error says which operation failed, and contains the driver's name and text for the failure.
// ErrNoDriver, ErrNoGPU, ErrOldGPU, ErrOldDriver and ErrOutOfMemory are causes that the user can fix. When a kernel
// fails, a later call that waits for it returns the error. Then everything created from the context is unusable, as the
// driver's manual says.
//
// Close of a nil Memory, Pinned, Stream, Event or Graph does nothing.
//
// Package kernels has the kernels. Tests call Open with the library of package cudatest, which runs
// kernels on the CPU.
package cuda
