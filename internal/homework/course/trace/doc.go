// Package trace describes what a submission is asked to do: a list of calls, and of
// writes from outside between them, as text that a student can edit and replay.
//
// Nothing here runs a trace or judges it.
package trace
