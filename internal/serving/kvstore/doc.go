// Package kvstore stores the keys and values of all layers, like vLLM's CacheEngine. A block of a layer can have the
// state of a sequence instead (Store.State). The package owns the memory of the blocks, on the device and on the host
// (both are memory of this machine). It writes keys and values into the slots of a slot mapping (reshape_and_cache). It
// copies a shared block before a write to it (copy_blocks). It moves blocks between device and host (swap_in, swap_out).
// Attention reads the blocks of the device. Requests keeps the block tables of requests from step to step. The scheduler
// decides which blocks a request gets; package attention reads them. With the build tag invariants, Poison overwrites
// freed blocks, so that tests detect reads of stale data.
package kvstore
