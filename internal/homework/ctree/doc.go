// Package ctree parses C with modernc.org/cc/v4. It returns the layout of structs, the
// constants and the prototypes of a header, and the functions of a source, as trees
// that are simpler than the grammar.
//
// Tests use it to compare llm_memory.h, the Go mirrors of package course, the C compiler and the
// exported symbols. Package rules uses it to check submissions.
//
// cc does not find all errors, so a compiler must have accepted a source before. Parse
// untrusted sources in a separate process, because deep nesting exhausts the stack, which ends a
// Go program.
package ctree
