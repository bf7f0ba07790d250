// Package kvstore holds the keys and values of all layers: vLLM's CacheEngine. It
// owns the memory of the blocks, on the device and on the host, writes keys and
// values where a slot mapping says (reshape_and_cache), copies blocks that are
// shared no longer (copy_blocks), and moves them between device and host
// (swap_in, swap_out). The "device" is memory that attention reads; both pools
// are memory of this machine.
//
// It knows nothing of requests: which block belongs to whom is the scheduler's
// business, and what is computed from the blocks is attention's. Build with the
// tag invariants to have Poison overwrite blocks, so that a stale read shows.
package kvstore
