// Package pool is vLLM V1's block pool: reference counts, the queue of free
// blocks, and the map from a block's hash to the block (vllm-v1 §1, §2, §4).
//
// Block 0 is the null block, the filler for table slots that are no longer
// needed: it is never in the queue, never hashed, never handed out, and its
// count stays 0. Every other block is free, and then in the queue, exactly when
// its count is 0. A free block keeps its keys, so a lookup can still hit it,
// until it is popped for reuse.
//
// Everything is ids in arrays, so the collector has nothing to scan and a step
// allocates nothing. Bytes for each block: 4 for the count, 12 for its links in
// the queue and the length of its prefix, 44 for its key and the links among
// blocks with the same key, and 16 to 32 for two to four slots of the hash map.
//
// The pool knows keys and tokens, not requests; tables belong to kvcache. It is
// not safe for concurrent use.
package pool
