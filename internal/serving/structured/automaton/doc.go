// Package automaton implements deterministic finite automata over Unicode characters. The operations on them are
// alternatives, sequences, repeats, intersection, difference and limits of length.
//
// An automaton is built completely, with all its states, so one can see whether there is any text that it accepts. Only
// [Limited] computes its states when they are needed. Operations that add states charge a [meter.Meter], which stops
// operations that would take too much work. This package does not deal with bytes, JSON or tokens.
package automaton
