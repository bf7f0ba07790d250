// Package exhaustive enumerates every short use of an engine: each distinct state
// that a bounded number of calls can reach, and in each state every call, also
// with each of its allocations failing.
//
// Two states are the same when they differ only in which ids are used or in the
// calls that led there. What a call does is the same in both, up to the ids. So
// a subject that agrees with the expected state after every call of every Case
// agrees on every sequence of calls within the bounds.
//
// The expected states come from State, the handout's text as a program over
// plain Go values: no pointers, no list, nothing from package course. This
// package does not know what it tests. The tests of package course play the cases against
// the engine; the C suite and the grader play them against a submission.
package exhaustive
