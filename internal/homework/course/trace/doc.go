// Package trace defines traces: lists of calls, and of writes from outside between
// them, that a submission is tested with. A trace has a text form that a student can
// edit and replay.
package trace
