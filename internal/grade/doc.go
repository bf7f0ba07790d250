// Package grade takes a submission through the stages and computes its points.
//
//	build      gate of the text and the object file, compiler, link
//	directed   traces for sentences of the handout, and sweeps over all positions
//	random     randomly generated traces
//	compare    plays a trace on the submission (runner, in a sandbox) and on the
//	           oracle, writes what the tester writes, and finds differences
//	shrink     makes the trace of a difference short
//	memcheck, sanitize, supervise   the same traces under Valgrind and the sanitizers
//	rules      static rules over the text
//	reproduce, drawing, terminal, page, gradescope, class   output for people
//
// A directed trace tests some functions; the tester does the work of the others
// (grading.isolate). Points are computed in points.go from the tests of a report;
// cmd/llmgrade/README.md has the table. Package oracle knows the expected state.
package grade
