// Package trace defines traces, with which submissions are tested. A trace is a list of steps. A step calls a function
// of the submission, or writes to the memory of an engine between two calls, as a white-box tester does. A trace has a
// text form that a student can edit and replay.
package trace
