// Package build makes a program from a submission: it checks the text and the object file
// (the gate), compiles with the flags of the course, and
// links with grader/process/runner.c, whose heap replaces malloc.
//
// The check of the text comes before any tool: it prevents the text from making the compiler
// read other files into its messages, use other flags, or report other line numbers.
// If macros put words together, the preprocessed text is checked as well.
// The check of the object file then decides what may run: no code outside the six
// calls, and no function of the C library that the homework does not need.
//
// Nothing here runs a submission. The tools run with limits, and their output is
// cut; a submission that exceeds the limits counts as not compiling.
package build
