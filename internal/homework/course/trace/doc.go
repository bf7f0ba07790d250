// Package trace defines traces, with which submissions are tested. A trace is a list of calls, and of writes from
// outside between them. It has a text form that a student can edit and replay.
package trace
