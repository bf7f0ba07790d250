// Package v0 is the KV-cache bookkeeping of vLLM V0, as it was in v0.6.4: block
// tables over a GPU and a CPU device, admission with a watermark, append with
// copy-on-write, forks, swapping, a sliding window, prefix caching, and the
// scheduler on top of them. Each function names the section of the rules it
// implements (vllm/v0/RULES.md §1 to §8).
//
// GPU blocks have the ids 0 to G-1, CPU blocks G to G+C-1. A sequence's table
// names blocks of one device; all tables of a group are swapped together. The
// reference count of a used block is the number of table entries that name it.
// A free block is in its device's stack, or, if prefixes are cached and it holds
// one, in the evictor, where a hit can still find it.
//
// A call that fails changes nothing. vLLM takes the free blocks and raises an
// exception half-way; the Manager checks first that enough blocks are free.
//
// Not modelled, because the recordings do not show them: encoder-decoder models,
// multi-step scheduling, LoRA, priorities, and what vLLM itself does wrongly:
// swapping or chunked prefill with prefix caching, and forks or swaps of a table
// whose window has moved on. These are refused. Not safe for concurrent use.
package v0
