// Package oracle computes the state of a correct submission: it plays a trace on
// package course, over memory of the grader. Package compare finds the differences
// from that state.
package oracle
