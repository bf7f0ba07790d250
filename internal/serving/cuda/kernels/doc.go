// Package kernels contains the kernels for GPUs and launches them. Their source is CUDA C++ (.cu). The command "make
// kernels" compiles the source to PTX, which is part of the package, too. A type such as RMSNorm has the arguments of
// an operation. Its method Launch adds the kernels of the operation to a stream.
//
// device.h describes which operations a kernel may use, how they are rounded, and the layout of blocks of keys and
// values. Kernels have vLLM's names where vLLM has such a kernel.
//
// A kernel computes a row (a token, a query head of a token, or a row of a product) in the same way in every batch. The
// shape of the launch may depend on the number of rows, but the order of additions in a row may not.
//
// attention.h and products.h define the order in which the sums of attention and of products are added.
//
// A new kernel consists of a .cu file, a Go file with its arguments, and a test that compares it with float64.
package kernels
