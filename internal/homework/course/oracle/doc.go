// Package oracle computes the state that a correct submission would be in: it plays a
// trace on package course, over memory of the grader. Package compare finds the
// differences from that state.
package oracle
