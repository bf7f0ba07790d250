// Package kvstore stores the keys and values of all layers: vLLM's CacheEngine. It
// owns the memory of the blocks, on the device and on the host, writes keys and
// values into the slots of a slot mapping (reshape_and_cache), copies blocks before
// a write to a shared one (copy_blocks), and moves them between device and host
// (swap_in, swap_out). The device pool is the memory that attention reads; both
// pools are memory of this machine.
//
// Requests keeps the block tables of requests from step to step. Which blocks a
// request gets is the scheduler's decision, and what is computed from them is
// attention's. With the build tag invariants, Poison overwrites blocks, so that a
// stale read shows.
package kvstore
