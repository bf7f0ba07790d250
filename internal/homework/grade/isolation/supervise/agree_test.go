package supervise

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/trace"
)

const (
	begin  = "<?xml version=\"1.0\"?>\n<valgrindoutput>\n<status><state>RUNNING</state></status>\n"
	failed = "<error><kind>InvalidRead</kind><what>Invalid read</what></error>\n"
	ended  = "<status><state>FINISHED</state></status>\n"
	closed = "</valgrindoutput>\n"
)

func TestOnlyAWholeReportIsBelieved(t *testing.T) {
	for name, c := range map[string]struct{ report, says string }{
		"whole":                {begin + failed + ended + closed, ""},
		"cut":                  {begin + failed + ended, "unexpected EOF"},
		"not finished":         {begin + failed + closed, `ends in the state ["RUNNING"]`},
		"finished twice":       {begin + ended + failed + ended + closed, "ends in the state"},
		"goes on after itself": {begin + ended + closed + failed + ended + closed, "after the end"},
		"empty":                {"", "EOF"},
	} {
		_, err := parseXML([]byte(c.report))
		if c.says == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.says, name)
		}
	}
}

func TestReportStatusAndStepsHaveToAgree(t *testing.T) {
	name := filepath.Join(t.TempDir(), "steps")
	require.NoError(t, os.WriteFile(name, make([]byte, 64), 0o600))
	steps, err := os.Open(name)
	require.NoError(t, err)
	defer steps.Close()
	one := []Finding{{Kind: "InvalidRead"}}
	for _, c := range []struct {
		found []Finding
		exit  int
		read  int64
		says  string
	}{
		{nil, 0, 64, ""},
		{one, complained, 64, ""},
		{nil, complained, 64, "0 complaints, but Valgrind's exit status is 99"},
		{one, 0, 64, "1 complaints, but Valgrind's exit status is 0"},
		{nil, 0, 48, "in the middle of a call"},
		{nil, 3, 64, "exit status 3"},
	} {
		_, err := steps.Seek(c.read, 0)
		require.NoError(t, err)
		err = agree(c.found, nil, c.exit, steps)
		if c.says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrUnfinished)
			require.ErrorContains(t, err, c.says)
		}
	}
}

func TestWhatFollowsFromOtherComplaintsIsLeftOut(t *testing.T) {
	read, leak := Finding{Kind: "InvalidRead", Function: "append_kv"}, Finding{Kind: "Leak_DefinitelyLost", Function: "llm_init"}
	inTester := Finding{Kind: "InvalidRead"}
	require.Equal(t, []Finding{read}, causes([]Finding{leak, read, inTester}))
	require.Equal(t, []Finding{leak, inTester}, causes([]Finding{leak, inTester}))

	ops := []trace.Op{{Kind: trace.Create}, {Kind: trace.Append}, {Kind: trace.Fork, Given: true}, {Kind: trace.Hole}}
	for _, f := range []*Finding{&read, &leak, &inTester} {
		f.blameLastCall(ops)
	}
	require.Equal(t, []string{"append_kv", "llm_init", "append_kv"}, []string{read.Function, leak.Function, inTester.Function})
}
