// Package cuda calls NVIDIA's driver: GPUs, their memory, streams, events, graphs, and kernels as PTX. It needs no cgo and
// no CUDA toolkit. The driver's library is opened at run time, so that a program with this package
// runs on machines without one.
//
// Every call is checked. An error says what could not be done and has the driver's name and text for it; the errors
// that a user can do something about wrap one of ErrNoDriver, ErrNoGPU, ErrOldGPU, ErrOldDriver and ErrOutOfMemory.
// An error of a kernel comes from a later call that waits for it, and everything made from the context is
// then unusable, as the driver's manual says.
//
// Package kernels has the kernels. Tests pass Open the library of package cudatest, which runs them on the host.
package cuda
