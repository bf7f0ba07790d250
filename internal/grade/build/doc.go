// Package build makes a program of a submission: the gates that its text and its
// object file have to pass, the compiler with the flags of the course, and the
// link with grader/process/runner.c, whose heap takes the place of malloc.
//
// The gate of the text comes before any tool: it keeps the compiler from reading
// other files into its messages, from being told other flags, and from being led
// to believe that lines are elsewhere. Words that macros put together are looked
// for in what the preprocessor makes of the text, where there are such macros.
// The gate of the object file then decides what may run: no code outside the six
// calls, nothing of the C library that the homework has no use for.
//
// Nothing here runs a submission. The tools run with limits, and what they say is
// cut; a submission that they cannot bear does not compile.
package build
