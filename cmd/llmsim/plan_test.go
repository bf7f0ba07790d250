package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that the built command plans for a trace, writes all it says it writes,
// and says in words what is wrong with a question, leaving nothing behind.
func TestPlanCommand(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "llmsim")
	text, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", text)
	plan := func(args ...string) (out, said string, err error) {
		cmd := exec.Command(binary, append([]string{"plan"}, args...)...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err = cmd.Run()
		return stdout.String(), stderr.String(), err
	}

	dir := filepath.Join(t.TempDir(), "plan")
	args := []string{"--trace", "testdata/bursts.csv", "--model", "llama-3-8b", "--gpu", "a100-40gb", "--slo", "ttft<2s@p99,tpot<40ms@p90", "--target", "3"}
	out, said, err := plan(append(args, "-o", dir)...)
	require.NoError(t, err, said)
	require.Empty(t, said, "no terminal, no bar")
	require.Regexp(t, `^llama-3-8b on 1 x a100-40gb: [\d.]+ requests/s under ttft<2s@p99, tpot<0.04s@p90 \(one trace, [\d.]+\s+times the trace's own\);\n  limited by `, out)
	narrow(t, out)
	for _, word := range []string{"131072 bytes a token", "runs of the first 160 requests, one trace", "up to a third off", "twice the KV memory", "\ntake  block size 16", "for 3.00/s"} {
		require.Contains(t, strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(word), " "))
	}
	again, _, err := plan(args...)
	require.NoError(t, err)
	require.Equal(t, out, again)
	text, err = os.ReadFile(filepath.Join(dir, "plan.json"))
	require.NoError(t, err)
	var saved struct{ Verdict string }
	require.NoError(t, json.Unmarshal(text, &saved))
	require.Equal(t, strings.ReplaceAll(strings.SplitN(out, "\n\n", 2)[0], "\n ", ""), saved.Verdict)
	require.FileExists(t, filepath.Join(dir, "index.html"))
	require.FileExists(t, filepath.Join(dir, "plan-latency.svg"))

	bad := filepath.Join(t.TempDir(), "bad.csv")
	require.NoError(t, os.WriteFile(bad, []byte("arrival,prompt,output\n0,10,10\n1,ten,10\n"), 0o600))
	for _, c := range []struct {
		want string
		args []string
	}{
		{"bad.csv:3", []string{"--trace", bad}},
		{"no such file", []string{"--trace", "absent.csv"}},
		{"known are", []string{"--workload", "sharegtp"}},
		{"vllm-v0, vllm-v1", []string{"--system", "vllm"}},
		{"llama-3-8b", []string{"--model", "llama-3-9b", "--gpu", "l4"}},
		{"want 0.5s/token", []string{"--slo", "ttft=2s"}},
		{"2 workers would do", []string{"--model", "opt-13b", "--gpu", "l4"}},
		{"target", []string{"--target", "-1"}},
	} {
		dir := filepath.Join(t.TempDir(), "none")
		out, said, err := plan(append(c.args, "-o", dir)...)
		require.Error(t, err, "%v", c.args)
		require.Contains(t, said, c.want)
		require.Empty(t, out)
		require.NoDirExists(t, dir)
	}
}
