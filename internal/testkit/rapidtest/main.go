// Package rapidtest makes packages whose random traffic is cheap try more of it.
// Only tests import it.
package rapidtest

import (
	"flag"
	"os"
	"testing"
)

// Main is a TestMain that makes rapid check 1,500 times instead of its default
// of 100, unless the command line says how often.
func Main(m *testing.M) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set("1500")
	}
	os.Exit(m.Run())
}
