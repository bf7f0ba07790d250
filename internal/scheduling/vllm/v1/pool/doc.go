// Package pool is vLLM V1's block pool: reference counts, the queue of free blocks, and the map from a block's hash to
// the block (vllm/v1/RULES.md §1, §2, §4).
//
// Block 0 is the null block. It is put into table slots that are no longer needed. It is never in the queue, never
// hashed and never returned by Get, and its count stays 0. Every other block is free exactly when its count is 0, and
// then it is in the queue. A free block keeps its keys, so lookups still find it, until Get takes it.
//
// The records and the hash map are arrays without pointers, so the garbage collector does not scan them. Without
// partial entries and events, a step allocates nothing. A block has one record of 64 bytes, a line of the processor's
// cache. In a large pool, each access to another line is a cache miss. On Linux, New asks for huge pages for large
// arrays, because otherwise most accesses would also miss the TLB. The hash map adds two to four slots of 8 bytes for
// each block.
//
// The pool has no requests: their block tables are in package kvcache. A Pool is not safe for concurrent use.
package pool
