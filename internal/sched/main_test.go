package sched

import (
	"flag"
	"os"
	"testing"
)

// Random traffic is cheap here: more of it than rapid's default of 100 runs.
func TestMain(m *testing.M) {
	flag.Parse()
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		_ = checks.Value.Set("1500")
	}
	os.Exit(m.Run())
}
