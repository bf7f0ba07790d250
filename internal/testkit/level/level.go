// Package level determines how much a test run may cost. There are three levels:
//
//	make quick      go test -short: compiles no submissions, starts no Valgrind and no browser,
//	                and leaves out tests that need many seconds of processor time
//	make test       runs all tests that a change must pass
//	make test-long  LLM_TEST_LONG=1: also runs the full matrices, soaks and exhaustive tests
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

// SkipQuick skips a test in make quick.
func SkipQuick(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short")
	}
}
