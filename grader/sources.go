// Package grader has the C sources of the folder process. llmgrade compiles them on the machine where it grades. The
// folder suite has the C suite, which is not part of llmgrade.
//
//	llm_memory.h  a copy of the file at the root of the repository, because go:embed cannot reach a parent folder
//	runner.c      makes one call at a time in the sandbox
//	watched.c     plays a whole trace under Valgrind or a sanitizer
//	launch.c      drops its privileges and executes another program
//	calls.c       what a submission asks the system for; runner.c includes it
//	fault.c       where a call ends the process; runner.c includes it
//	prints.c      limits what a submission prints; runner.c and watched.c include it
//	stubs.c       replaces functions that a submission does not define
//	tester.c      what a white-box tester does to an engine; watched.c includes it
//	bare.c        what launch.c includes instead of the C library
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
