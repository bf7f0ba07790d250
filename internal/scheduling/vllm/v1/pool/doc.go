// Package pool is vLLM V1's block pool: reference counts, the queue of free
// blocks, and the map from a block's hash to the block (vllm/v1/RULES.md §1, §2, §4).
//
// Block 0 is the null block, the filler for table slots that are no longer
// needed: it is never in the queue, never hashed, never handed out, and its
// count stays 0. Every other block is free, and then in the queue, exactly when
// its count is 0. A free block keeps its keys, so a lookup can still hit it,
// until it is popped for reuse.
//
// All state is ids in arrays, so the garbage collector scans nothing and a step allocates nothing.
// A block takes one record of 64 bytes, which is one line of the processor's cache: in a large pool
// every line is a miss, and the arrays are on huge pages for the same reason. The hash map adds two
// to four slots of 8 bytes.
//
// The pool knows keys and tokens, not requests; tables belong to kvcache. It is
// not safe for concurrent use.
package pool
