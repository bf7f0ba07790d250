// Package trace defines traces, with which submissions are tested. A trace is a list of steps. A step calls a function
// of the submission, or writes to the memory of an engine between two calls, as a white-box tester does. If a step is
// given, the tester makes the changes of the call instead of the submission. A trace has a text form that a student can
// edit and replay.
package trace
