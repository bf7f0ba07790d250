// Package rapidtest makes random tests cheap, and lets packages whose random tests are cheap run
// more of them. Only tests import it.
package rapidtest

import (
	"flag"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// Main is a TestMain that makes rapid check 1,500 times instead of 100, unless the command line
// sets a number.
func Main(m *testing.M) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set("1500")
	}
	os.Exit(m.Run())
}

// Check is rapid.Check for tests that assert often. testing.T.Helper, which each assertion calls
// twice, looks its caller up, which takes longer than most assertions. A failed one prints where it
// was called all the same.
func Check(t *testing.T, prop func(*rapid.T)) {
	t.Helper()
	rapid.Check(withoutHelper{t}, prop)
}

type withoutHelper struct{ *testing.T }

func (withoutHelper) Helper() {}
