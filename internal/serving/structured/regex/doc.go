// Package regex compiles regular expressions to automata. The syntax is that of ECMA 262, which JSON
// Schema uses, without the u flag, and some syntax of Python and Rust: named groups with (?P<name>),
// the flags i and s but not m and x, \A and \z.
//
// The package refuses what a finite automaton cannot do, such as a reference to a group, with an error
// that names it.
package regex
