// Package regex compiles regular expressions to automata. The syntax is ECMA 262's, as in JSON Schema: that without the
// u flag, and \u{...} and \p{...}, which need the flag there. Some syntax of Python, Rust and POSIX is also accepted:
// named groups with (?P<name>), the flags i and s but not m and x, \A, \z and \Z, \a, \e, \U, and classes such as
// [[:alpha:]].
//
// The package refuses what a finite automaton cannot do, such as a reference to a group. The error names it.
package regex
