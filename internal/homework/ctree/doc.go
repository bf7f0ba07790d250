// Package ctree parses a C source with modernc.org/cc/v4. It returns the functions as trees that are simpler than
// cc's.
//
// cc does not find all errors, so a compiler must have accepted the source before. Parse an untrusted source in a
// separate process: deep nesting exhausts the stack, which ends a Go program.
package ctree
