// Package exhaustive enumerates every short use of an engine: each distinct state
// that a bounded number of calls can reach, and in each state every call, also
// with each of its allocations failing.
//
// States that differ only in the ids used or in the calls that led there count as the
// same, because a call does the same in both, up to the ids. So a subject that agrees
// with the expected state after every call of every Case agrees on every sequence of
// calls within the bounds.
//
// State computes the expected states: it is the handout's text as a program over plain
// Go values, without pointers or a list, and independent of package course. The tests of
// course play the cases against its engine, the C suite against a submission.
package exhaustive
