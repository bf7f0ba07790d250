// Package grade takes a submission through the stages and says what it is worth.
//
//	build      gate of the text and the object file, compiler, link
//	directed   traces for sentences of the handout, and sweeps over all positions
//	random     traces that nobody wrote down
//	compare    plays a trace on the submission (runner, in a sandbox) and on the
//	           oracle, writes what the tester writes, and finds differences
//	shrink     makes the trace of a difference short
//	memcheck, sanitize, supervise   the same traces under Valgrind and the sanitizers
//	rules      the text
//	reproduce, drawing, terminal, page, gradescope, class   what people read
//
// A directed trace is for some functions; the tester does the work of the others
// (grading.isolate). Points are computed in points.go from the tests of a report;
// cmd/llmgrade/README.md has the table. What is right is package oracle's to know.
package grade
