package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a trace can come from a pipe, which is read twice all the same.
func TestATraceFromAPipe(t *testing.T) {
	for _, path := range []string{"-", "/dev/stdin"} {
		cmd := program("run", "--trace", path)
		cmd.Stdin = strings.NewReader("arrival,prompt,output\n0,10,5\n1,10,5\n")
		status, stdout, stderr := finish(t, cmd)
		require.Zero(t, status, stderr)
		require.Contains(t, stdout, "2 of 2 requests in 1.11 s, ")
		cmd = program("run", "--trace", path)
		cmd.Stdin = strings.NewReader("arrival,prompt,output\n0,10,5\n0.25,10,5\n")
		_, stdout, _ = finish(t, cmd)
		require.Contains(t, stdout, "CSV: 2 requests in 0.25 s, ")
		cmd = program("run", "--trace", path)
		cmd.Stdin = strings.NewReader("arrival,prompt,output\n0,10,5\n1,ten,5\n")
		status, _, stderr = finish(t, cmd)
		require.Equal(t, 1, status)
		require.Contains(t, stderr, path+":3:")
	}
}

// Ensure that what cannot be run is refused, and that a run that served nothing
// fails and has no latencies.
func TestRunsThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []struct{ name, args, wantErr string }{
		{"too long", "run --duration 1e18", "want 0 to 1000000000"},
		{"too fast", "run --rate 1e12", "want 0 to 1000000"},
		{"too many", "run --rate 1e5 --duration 1e8", "1000000000 requests"},
		{"nothing arrives", "run --rate 0.0001 --duration 1", "no request arrived"},
		{"nothing is served", "run --max-len 20 --max-tokens 20 --requests 3",
			"none of 3 requests was served; the first was refused: "},
		{"near miss of a flag", "run --ratee 3", "did you mean --rate?"},
		{"a file without a flag", "run trace.csv",
			"llmsim run takes flags, and no \"trace.csv\"; a file goes with --trace FILE\n"},
		{"calls without a flag", "view calls.trace", "a file goes with --trace FILE or --course FILE"},
		{"an argument of list", "list models", "llmsim list takes flags, and no \"models\"\n"},
		{"a flag that a plan cannot have", "plan --rate 3", "--rate: a plan finds the rate; --target says what a rate takes"},
		{"clients of a plan", "plan --turns 3", "do not wait for answers"},
		{"a target that is none", "plan --target 1e300", "want more than 0, and at most 1000000"},
		{"a target that is not a number", "plan --target NaN", "want more than 0"},
		{"fewer than no sequences", "run --max-seqs -1", "--max-seqs -1: want at least 1"},
		{"fewer than no tokens", "plan --max-tokens -7", "--max-tokens -7: want at least 1"},
		{"a GPU by half of its name", "run --model llama-3-8b --gpu H100", "did you mean h100-80gb or h100-pcie-80gb?"},
		{"a GPU by part of two names", "run --model llama-3-8b --gpu a100", "did you mean a100-40gb or a100-80gb?"},
		{"a model with a letter missing", "run --model llama3-8b --gpu l4", "did you mean llama-3-8b?"},
		{"a GPU beside a setup", "run --setup llama-3-8b --gpu l4", "already: leave out l4\n"},
		{"numbers of a setup", "run --weights int4", "--weights and --kv go with --model and --gpu"},
		{"one number of several", "run --max-concurrency -1", "requests at once: -1: want a number of at least 0"},
		{"one probability of two", "run --drafts 2 --accept 2", "a draft is accepted with the probability 2: want 0 to 1"},
		{"a command that was removed", "disaggregate --servers 2",
			"disaggregate was removed: prefill and decode on different servers are not simulated"},
		{"a flag that was removed", "fleet --mtbf 60", "--mtbf was removed: replicas do not fail"},
		{"a flag that was removed, with its value", "fleet --scale=2:4", "compare several values of --replicas"},
		{"a percentile that is none", "plan --slo ttft<1s@p0", `"p0" is no mean, max, or percentile`},
		{"an objective of a run", "run --slo ttft<1s", "--goodput counts the requests within limits; llmsim plan finds"},
		{"vLLM's name of a flag", "run --tensor-parallel-size 2", "here it is --workers"},
		{"vLLM's name of a flag, with its value", "plan --max-num-seqs=2", "here it is --max-seqs"},
		{"the rate of a benchmark", "fleet --request-rate 2", "here it is --rate"},
		{"the rate of a benchmark for a plan", "plan --qps 2", "a plan finds the rate"},
		{"a duration with a unit", "run --duration 1h",
			"invalid argument \"1h\" for \"--duration\" flag: want a number without a unit; llmsim run --help has the unit\n"},
		{"a negative seed", "plan --seed -1",
			"invalid argument \"-1\" for \"--seed\" flag: want a whole number of at least 0\n"},
		{"half a request", "run --requests 2.5", "invalid argument \"2.5\" for \"--requests\" flag: want a whole number\n"},
		{"vLLM's part of the memory", "run --gpu-memory-utilization 0.9", "here it is --memory-utilization"},
		{"no part of the memory", "run --memory-utilization 0", "--memory-utilization 0: want more than 0"},
		{"memory given twice", "run --memory-utilization 0.8 --blocks 9", "does nothing with --blocks"},
		{"a page of no step", "view --steps 0 -o x.html", "--steps 0: want more than 0"},
		{"far from any flag", "run --zebra 3", "unknown flag: --zebra"},
		{"a shell that is not there", "completion csh", "no shell \"csh\"; shells: bash, fish, powershell, zsh"},
		{"help for no command", "help plna", "no command \"plna\", did you mean plan?"},
		{"a folder that cannot be", "plan -o /dev/null/plan", "/dev/null"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, stdout, stderr := llmsim(t, strings.Fields(c.args)...)
			require.Equal(t, 1, status)
			require.Contains(t, stderr, c.wantErr)
			if stdout != "" {
				require.Regexp(t, `to the first token +- +- +- +- +-`, stdout)
			}
		})
	}
}

// Ensure that every command notices that its output cannot be written.
func TestAFullDiskIsNoticed(t *testing.T) {
	for _, args := range []string{"list", "list --json", "run --requests 5", "fleet --duration 5",
		"plan --slo tpot<20ms --seeds 1", "--help", "--version"} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		require.NoError(t, err)
		cmd := program(strings.Fields(args)...)
		cmd.Stdout = full
		var said strings.Builder
		cmd.Stderr = &said
		require.Error(t, cmd.Run(), args)
		require.Equal(t, 1, strings.Count(said.String(), "no space left on device"), args)
		require.NoError(t, full.Close())
	}
	status, _, stderr := llmsim(t, "view", "--story", "copy-on-write", "-o",
		filepath.Join(t.TempDir(), "none", "page.html"))
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "none/page.html: no such file or directory")
	require.NotContains(t, stderr, ".new-")
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
	require.Contains(t, names["engines"], "tensorrt-llm")
	status, stdout, _ = llmsim(t, "completion", "bash")
	require.Zero(t, status)
	require.Contains(t, stdout, "llmsim")
}

func TestAShellCompletesNames(t *testing.T) {
	for _, c := range []struct{ name, args, want string }{
		{"model", "plan --model", "llama-3-8b"},
		{"GPU", "run --gpu", "h100-80gb"},
		{"GPUs", "cheapest --gpus", "h100-80gb"},
		{"engine", "plan --engine", "tensorrt-llm"},
		{"system", "run --system", "vllm-v1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, stdout, _ := llmsim(t, append(strings.Fields("__complete "+c.args), "")...)
			require.Zero(t, status)
			require.Contains(t, strings.Split(stdout, "\n"), c.want)
		})
	}
}
