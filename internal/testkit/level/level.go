// Package level determines how much a test run may cost. There are three levels:
//
//	make quick      go test -short: compiles no submissions, starts no Valgrind and no browser,
//	                and leaves out tests that need many seconds of processor time
//	make test       at least one test of each package and each rule, one path through each command
//	make test-long  LLM_TEST_LONG=1: more cases of the same rules, full matrices, soaks, exhaustive tests
//
// A test whose rule another test of make test already covers calls SkipNormal if it needs more than a second of
// processor time. A test with many cases picks some of them with First, Pick or Long. A file of tests has the build tag long
// if it imports a module that make test need not compile, such as OpenAI's client. The script .ci/cheaply sets the tag
// in make test-long and make vet.
package level

import (
	"os"
	"testing"
)

// Long reports whether the run is make test-long.
func Long() bool { return os.Getenv("LLM_TEST_LONG") != "" }

// Pick returns normal, or long in make test-long.
func Pick[T any](normal, long T) T {
	if Long() {
		return long
	}
	return normal
}

// First returns the first n cases of a table, or all in make test-long.
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

// SkipNormal skips a test in all runs except make test-long.
func SkipNormal(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("only in make test-long: LLM_TEST_LONG=1")
	}
}
