// Package rapidtest makes random tests cheaper, and runs more of them in packages where they are cheap. Only tests
// import it.
package rapidtest

import (
	"flag"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// Main is a TestMain. Unless the command line sets a number, it makes rapid run 1,500 random checks instead of 100.
func Main(m *testing.M) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set("1500")
	}
	os.Exit(m.Run())
}

// Check does what rapid.Check does, for tests with many assertions. Each assertion calls testing.T.Helper twice, which
// looks up its caller and takes longer than most assertions; Check disables these calls. A failed assertion still
// prints where it was called.
func Check(t *testing.T, prop func(*rapid.T)) {
	t.Helper()
	rapid.Check(withoutHelper{t}, prop)
}

type withoutHelper struct{ *testing.T }

func (withoutHelper) Helper() {}
