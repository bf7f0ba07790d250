package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a trace can be read from a pipe, although llmsim reads every trace twice.
func TestATraceFromAPipe(t *testing.T) {
	for rows, want := range map[string]string{
		"0,10,5\n0.25,10,5\n": "2 of 2 requests in 0.363 s, ",
		"0,10,5\n1,ten,5\n":   "-:3:",
	} {
		cmd := program("run", "--trace", "-")
		cmd.Stdin = strings.NewReader("arrival,prompt,output\n" + rows)
		_, stdout, stderr := finish(t, cmd)
		require.Contains(t, stdout+stderr, want)
	}
}

func TestAFullDiskIsNoticed(t *testing.T) {
	for _, args := range []string{"list", "list --json", "run --requests 5", "fleet --duration 5",
		"plan --slo tpot<20ms --seeds 1", "--help", "--version"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		var said strings.Builder
		require.Equal(t, 1, run(t.Context(), strings.Fields(args), full, &said), args)
		require.Equal(t, 1, strings.Count(said.String(), "no space left on device"), args)
		require.NoError(t, full.Close())
	}
}

func TestTheVersionAndTheNamesAreSaid(t *testing.T) {
	status, stdout, _ := llmsim(t, "--version")
	require.Zero(t, status)
	require.Contains(t, stdout, "llmsim version")
	status, stdout, _ = llmsim(t, "list", "--json")
	require.Zero(t, status)
	var names map[string][]string
	require.NoError(t, json.Unmarshal([]byte(stdout), &names))
	require.Contains(t, names["systems"], "vllm-v1")
	require.Equal(t, []string{"vllm", "data-sheet"}, names["engines"])
	status, stdout, _ = llmsim(t, "completion", "bash")
	require.Zero(t, status)
	require.Contains(t, stdout, "llmsim")
}

func TestAShellCompletesNames(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"model", "plan --model", "llama-3-8b"},
		{"GPU", "run --gpu", "h100-80gb"},
		{"engine", "plan --engine", "data-sheet"},
		{"system", "run --system", "vllm-v1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, stdout, _ := llmsim(t, append(strings.Fields("__complete "+c.args), "")...)
			require.Zero(t, status)
			require.Contains(t, strings.Split(stdout, "\n"), c.want)
		})
	}
}
