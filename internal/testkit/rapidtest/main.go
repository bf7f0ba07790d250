// Package rapidtest lets packages with cheap random tests run more of them. Only tests import
// it.
package rapidtest

import (
	"flag"
	"os"
	"testing"
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
