// Package automaton holds deterministic finite automata over Unicode characters, and what makes one from another:
// alternatives, sequences, repeats, intersection, difference, limits of length.
//
// An automaton is built at once, with all its states, so whether it accepts nothing is known. Every operation spends
// from a [Budget], which stops automata that would be too large. Bytes, JSON and tokens are not its subject.
package automaton
