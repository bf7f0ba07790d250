// Package regex reads regular expressions and makes automata of them. The syntax is that of ECMA 262 with the u flag
// off, which JSON Schema names, with what Python and Rust add: named groups by (?P<name>), flags i, s, m, x not, \A, \z.
//
// What a finite automaton cannot do, such as a reference to a group, is refused by name.
package regex
