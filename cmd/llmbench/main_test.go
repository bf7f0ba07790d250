package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func run(args ...string) (string, error) {
	var out bytes.Buffer
	c := command()
	c.SetOut(&out)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func TestReplayComparesRecordings(t *testing.T) {
	good := "../../testdata/traces/v1/p01_pool_caching.jsonl.gz"
	out, err := run("replay", "--passes", "1", good)
	require.NoError(t, err)
	require.Regexp(t, `^p01_pool_caching +equal +3014 operations +\d+ per second +\d+ ns each\n$`, out)

	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	require.NoError(t, os.WriteFile(bad, []byte("{\n"), 0o600))
	out, err = run("replay", "--passes", "1", bad, good)
	require.EqualError(t, err, "1 of 2 recordings differ")
	require.Contains(t, out, "bad.jsonl: bad trace: line 1")
	require.Contains(t, out, "p01_pool_caching", "it goes on with the next one")

	_, err = run("replay")
	require.Error(t, err)
	_, err = run("replay", "--passes", "0", good)
	require.ErrorContains(t, err, "want at least 1")
	_, err = run("bench", "--samples", "0")
	require.ErrorContains(t, err, "want at least 1")
}
