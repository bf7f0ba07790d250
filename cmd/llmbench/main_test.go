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
	out, err := run("replay", good)
	require.NoError(t, err)
	require.Regexp(t, `^p01_pool_caching +equal +3015 lines\n$`, out)

	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	require.NoError(t, os.WriteFile(bad, []byte("{\n"), 0o600))
	out, err = run("replay", bad, good)
	require.EqualError(t, err, "1 of 2 recordings differ")
	require.Contains(t, out, "bad.jsonl: bad trace: line 1")
	require.Contains(t, out, "p01_pool_caching", "it goes on with the next one")

	_, err = run("replay")
	require.Error(t, err)
	_, err = run("bench", "--samples", "0")
	require.ErrorContains(t, err, "want at least 1")
}

// Ensure that recordings of V0, the paper's system and Orca are distinguished from V1's
// by their first line, and played by the same command.
func TestRecordingsOfV0AndThePaperAreReplayed(t *testing.T) {
	traces := "../../testdata/traces/v0/"
	out, err := run("replay", traces+"v0_swa_overadmit.jsonl.gz", traces+"sosp_orca_small.jsonl.gz")
	require.NoError(t, err)
	require.Regexp(t, `^v0_swa_overadmit +equal +3 lines; 1 after the failure, which leaves vLLM in a state of its own
sosp_orca_small +equal +1088 lines
$`, out)

	bad := filepath.Join(t.TempDir(), "bad.jsonl")
	line := `{"op":"init","flavour":"sosp23","block_size":4,"num_gpu_blocks":8,"num_cpu_blocks":2}` + "\n" +
		`{"op":"can_allocate","group":0,"seqs":[0],"n":4,"ok":true,"free":[8,3]}` + "\n"
	require.NoError(t, os.WriteFile(bad, []byte(line), 0o600))
	out, err = run("replay", bad)
	require.EqualError(t, err, "1 of 1 recordings differ")
	require.Contains(t, out, "bad, line 2: can_allocate")
	require.Contains(t, out, "field     free\n  recorded  [8,3]\n  played    [8,2]\n")
}
