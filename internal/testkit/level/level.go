// Package level determines how much a test run may cost. There are four levels:
//
//	make quick       go test -short: compiles no submissions, starts no Valgrind and no browser,
//	                 and leaves out tests that need many seconds of processor time
//	make test        at least one test of each package and each rule, one path through each command
//	make test-long   LLM_TEST_LONG=1: more cases of the same rules, in minutes
//	make exhaustive  LLM_TEST_LONG=exhaustive: also full matrices, soaks and exhaustive tests, in hours
//
// A test of a rule that another test of make test covers calls SkipNormal if it needs more than a second of processor
// time. A test with a table of cases ranges over First. A file of tests has the build tag long if it imports a module
// that make test need not compile, such as OpenAI's client. The script .ci/cheaply sets the tag.
package level

import (
	"os"
	"runtime/debug"
	"testing"
)

// Long reports whether the run is make test-long or make exhaustive.
func Long() bool { return os.Getenv("LLM_TEST_LONG") != "" }

// Exhaustive reports whether the run is make exhaustive.
func Exhaustive() bool { return os.Getenv("LLM_TEST_LONG") == "exhaustive" }

// Pick returns normal, or exhaustive in make exhaustive.
func Pick[T any](normal, exhaustive T) T {
	if Exhaustive() {
		return exhaustive
	}
	return normal
}

// First returns the first n cases of a table, or all in make test-long and make exhaustive.
func First[T any](n int, all []T) []T {
	if Long() {
		return all
	}
	return all[:n]
}

// SkipQuick skips a test in make quick.
func SkipQuick(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short")
	}
}

// SkipNormal skips a test in all runs except make test-long and make exhaustive.
func SkipNormal(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("only in make test-long: LLM_TEST_LONG=1")
	}
}

// CollectLess makes this process collect garbage less often, except in make exhaustive: when the heap has five times the
// size of the memory in use, as with GOGC=400. It is for packages whose tests allocate much, keep little, and do not
// measure the size of the heap.
func CollectLess() {
	if !Exhaustive() {
		debug.SetGCPercent(400)
	}
}
