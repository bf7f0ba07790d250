// Package oracle computes the state that a correct submission has after each step of a trace. It plays the trace on
// package course, in memory of the grader. Package compare compares the submission's state with it.
package oracle
