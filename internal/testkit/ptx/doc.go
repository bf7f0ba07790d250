// Package ptx interprets the PTX of kernels, so that tests execute what a GPU would execute. It knows the instructions
// that clang writes for the product's kernels, and refuses others by name. It also refuses local memory, which is slow. It
// has no driver and no streams: testkit/cudatest calls it for launches.
//
// A warp executes an instruction for all of its lanes at once. After a branch that only some lanes take, the lanes with
// the lowest instruction run first, until they meet the others. An instruction of the whole warp (shfl, vote, ldmatrix,
// mma, bar) waits until all lanes have come to it. A launch fails if they cannot, as it does for an access outside of
// memory, a misaligned access, or a thread that returns without waiting for its copies.
//
// Shared memory and registers begin with all bits set. The destination of a cp.async has all bits set until the thread
// waits for the copy. Memory has one order: what another thread wrote is seen at once.
//
// mma adds in float64 from k = 0 to 15, then adds c, and rounds once, as the emulator of cudatest does; ex2.approx is
// also the emulator's. NVIDIA documents neither. All other results are as the PTX manual defines them.
//
// A kernel counts what its runs execute: instructions, moved bytes, conflicts of banks of shared memory, and sectors of
// global memory.
package ptx
