// Package grader has the C sources of the folder process. llmgrade compiles them on the machine where it grades. The
// folder suite has the C suite, which is not part of llmgrade.
//
//	llm_memory.h  is a copy of the file at the root of the repository; go:embed cannot reach a parent folder
//	runner.c      makes one call at a time in the sandbox
//	watched.c     plays a whole trace under Valgrind or a sanitizer
//	launch.c      drops its privileges and executes another program
//	calls.c       handles the forbidden system calls of a submission; runner.c includes it
//	fault.c       records where a call that ends the process went wrong; runner.c includes it
//	prints.c      limits what a submission prints; runner.c and watched.c include it
//	stubs.c       replaces functions that a submission does not define
//	tester.c      changes an engine as a white-box tester does; watched.c includes it
//	bare.c        replaces the C library in launch.c, which includes it
package grader

import "embed"

//go:embed process
var process embed.FS

// Header is llm_memory.h.
var Header = Source("llm_memory.h")

// Source returns a file of the folder process, which must exist.
func Source(name string) []byte {
	text, err := process.ReadFile("process/" + name)
	if err != nil {
		panic(err) // the files are embedded
	}
	return text
}
