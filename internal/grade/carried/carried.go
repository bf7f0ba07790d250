// Package carried is what llmgrade has in it of this repository, so that the
// binary needs nothing beside it but a compiler: copies, which a test holds
// equal to the originals.
package carried

import _ "embed"

// Header is llm_memory.h.
//
//go:embed llm_memory.h
var Header []byte

// Runner is grader/runner.c, Watched grader/watched.c. The copies have names that
// go build does not compile.
//
//go:embed runner.c.txt
var Runner []byte

//go:embed watched.c.txt
var Watched []byte

// Launcher is grader/launch.c.
//
//go:embed launch.c.txt
var Launcher []byte
