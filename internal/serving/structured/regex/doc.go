// Package regex compiles regular expressions to automata. The syntax is ECMA 262's without the u flag, as in JSON
// Schema. Some syntax of Python and Rust is also accepted: named groups with (?P<name>), the flags i and s but not m
// and x, \A and \z.
//
// The package refuses what a finite automaton cannot do, such as a reference to a group. The error names it.
package regex
