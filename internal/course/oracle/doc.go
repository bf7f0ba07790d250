// Package oracle computes the state that a correct submission would be in: it plays a
// trace on package course, over memory of the grader. What differs from that state is
// found by package compare.
package oracle
