// Package v0 is the KV-cache manager and the scheduler of vLLM v0.6.4 (V0). The manager has block tables over a GPU and
// a CPU device, forks, swapping, a sliding window, and prefix caching. It admits requests with a watermark and appends
// with copy-on-write. The comments of functions cite the rules that they implement (vllm/v0/RULES.md §1 to §8).
//
// GPU blocks have the ids 0 to G-1, CPU blocks G to G+C-1. A sequence's table names blocks of one device; all tables of
// a group are swapped together. The reference count of a used block is the number of its table entries, except for the
// null block of a sliding window. A free block is on its device's stack or, if it contains a cached prefix, in the
// evictor. A prompt with the same prefix can still find it there.
//
// A call of the Manager that fails changes nothing, because the Manager first checks that enough blocks are free. vLLM
// instead takes the free blocks and then raises an exception.
//
// Encoder-decoder models, multi-step scheduling, LoRA and priorities are left out, because the recordings do not show
// them. The package returns an error where vLLM would do something wrong:
//
//   - if prefix caching is combined with swapping or with chunked prefill;
//   - if a table is forked or swapped after its window has moved.
//
// Nothing here is safe for concurrent use.
package v0
