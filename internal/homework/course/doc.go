// Package course is the engine of the homework handout, in Go without cgo. It works on memory that it does not own: the
// structs of llm_memory.h in a C program, in a test's arena, or in the grader's arena.
//
// These structs are the only authoritative state (internal/README.md, decision 1). A white-box grader may write any
// field between calls. A call has the same result as the handout's plain algorithm, which searches the list from its
// head and the counts from block 0. The package remembers the last position of a sequence, but compares it with the
// visible memory before it uses it (cache.go).
//
// If a call detects that the visible memory is inconsistent, it fails and changes nothing. The error is ErrCorrupt, or
// ErrNoBlocks if free_local_blocks is not 0 but no count is. Only free continues after a wrong table entry, and skips it.
//
// The host is a C program, so a call must not allocate on the Go heap, start a goroutine, or panic. A Library
// serialises the calls on one engine. Besides the Library, only the index is used by several threads. The rules about
// reference counts are in package block.
package course
