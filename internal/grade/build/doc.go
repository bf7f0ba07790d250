// Package build makes a program of a submission: the gate that its object file
// has to pass, the compiler with the flags of the course, and the link with
// grader/runner.c, whose heap takes the place of malloc.
//
// Nothing here runs a submission.
package build
