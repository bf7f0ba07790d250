// Package kernels has the kernels that a GPU runs, as CUDA C++ (.cu) and as the PTX that make kernels compiles from it,
// and starts them. Each type, such as RMSNorm, is a kernel with its arguments; Launch puts it into a stream.
//
// device.h describes what a kernel may use, how operations are rounded, and how blocks of keys and values lie
// in memory. Names of kernels are vLLM's where vLLM has them.
//
// A kernel computes a row (a token, a query head of a token, a row of a product) in the same way in every batch: the
// shape of the launch may depend on the number of rows, the order of additions of a row may not.
//
// attention.h and products.h say in which order the sums of attention and of products are added.
//
// A new kernel is a .cu file, a Go file with its arguments, and a test that compares it with float64.
package kernels
