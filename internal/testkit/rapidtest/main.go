// Package rapidtest makes random tests (rapid) cheaper, and runs more of them in packages where they are cheap. Only
// tests import it.
package rapidtest

import (
	"flag"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// Main is a TestMain. It makes rapid run 1,500 random checks of a test instead of 100, unless the command line sets a
// number.
func Main(m *testing.M) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set("1500")
	}
	os.Exit(m.Run())
}

// Check does the same as rapid.Check, but makes assertions cheaper. Each assertion calls testing.T.Helper twice, which
// looks up its caller and takes longer than most assertions; Check disables these calls. A failed assertion still
// prints the line that called it.
func Check(t *testing.T, prop func(*rapid.T)) {
	t.Helper()
	rapid.Check(withoutHelper{t}, prop)
}

type withoutHelper struct{ *testing.T }

func (withoutHelper) Helper() {}
