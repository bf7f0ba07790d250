// Package kvstore stores the keys and values of all layers: vLLM's CacheEngine. It
// owns the memory of the blocks, on the device and on the host, writes keys and
// values into the slots of a slot mapping (reshape_and_cache), copies blocks before
// a write to a shared one (copy_blocks), and moves them between device and host
// (swap_in, swap_out). The device pool is the memory that attention reads; both
// pools are memory of this machine.
//
// Requests keeps the block tables of requests from step to step. The scheduler
// decides which blocks a request gets, and package attention computes from them. With
// the build tag invariants, Poison overwrites freed blocks, so that tests detect reads
// of stale data.
package kvstore
