// Package grader carries the C sources that llmgrade compiles on the machine
// where it grades, so that the binary needs nothing beside it but a compiler.
// The folder process holds them; the folder suite holds the C suite, which is
// not part of llmgrade.
package grader

import _ "embed"

// Header is llm_memory.h. It is a copy, because go:embed cannot reach a parent
// folder; a test holds it equal to the file at the root of the repository.
//
//go:embed process/llm_memory.h
var Header []byte

// Runner is the program that makes one call at a time in the sandbox.
//
//go:embed process/runner.c
var Runner []byte

// Calls says what a submission asks the system for; Runner includes it.
//
//go:embed process/calls.c
var Calls []byte

// Fault says where a call ends the process; Runner includes it.
//
//go:embed process/fault.c
var Fault []byte

// Prints limits what a submission prints; Runner and Watched include it.
//
//go:embed process/prints.c
var Prints []byte

// Watched is the program that plays a whole trace under Valgrind or a sanitizer.
//
//go:embed process/watched.c
var Watched []byte

// Launcher is the program that takes its own rights away and starts another.
//
//go:embed process/launch.c
var Launcher []byte

// Bare is what Launcher has in place of the C library, and includes.
//
//go:embed process/bare.c
var Bare []byte

// Tester is what a white-box tester does to an engine; Watched includes it.
//
//go:embed process/tester.c
var Tester []byte
