// Package ctree reads C with modernc.org/cc/v4: of a header the layout of
// structs, the values of constants and the prototypes; of a source its functions,
// as trees that are simpler than the grammar.
//
// Tests use it to compare llm_memory.h, the Go mirrors of package course, the C compiler and the
// exported symbols. Package rules decides what a submission must not contain.
//
// cc is not a conformance checker; a compiler must have accepted the source first. Parse
// untrusted sources in a separate process: deep nesting exhausts the stack, which ends a Go
// program.
package ctree
