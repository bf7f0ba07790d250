// Package v0 is the KV-cache manager and the scheduler of vLLM v0.6.4 (V0): block tables over a GPU and a CPU device,
// admission with a watermark, append with copy-on-write, forks, swapping, a sliding window, and prefix caching. The
// comments of functions cite the rules that they implement (vllm/v0/RULES.md §1 to §8).
//
// GPU blocks have the ids 0 to G-1, CPU blocks G to G+C-1. A sequence's table names blocks of one device; all tables
// of a group are swapped together. The reference count of a used block is the number of table entries that name it. A
// free block is on its device's stack or, if it contains a cached prefix, in the evictor, where a prompt with the same
// prefix can still find it.
//
// A call that fails changes nothing. (vLLM takes the free blocks and then raises an exception; the Manager first
// checks that enough blocks are free.)
//
// Encoder-decoder models, multi-step scheduling, LoRA and priorities are left out, because the recordings do not show
// them. This package refuses what vLLM does wrongly: swapping or chunked prefill with prefix caching, and forks or
// swaps of a table whose window has moved. Nothing here is safe for concurrent use.
package v0
