// Package course is the engine of the homework handout, in Go without cgo. It works
// on memory that it does not own: the structs of llm_memory.h in a C program, in a
// test's arena, or in the grader's arena.
//
// Those structs are the only authoritative state (internal/README.md, decision 1). A white-box
// grader may write any field between calls. The result of a call is what the handout's
// plain algorithm would have made of that memory: walk the list from its head, scan
// the counts from block 0. This package only remembers where it last found a
// sequence, and checks that against the visible memory before it uses it (cache.go).
//
// If a call finds by a comparison that the visible memory is inconsistent, it fails
// with ErrCorrupt and changes nothing; free skips bad table entries.
//
// The host is a C program, so a call must not allocate on the Go heap, start a
// goroutine, or panic. A Library serialises the calls on one engine. Apart from it,
// only the index is used by several threads. The rules about reference counts are in
// package block.
package course
