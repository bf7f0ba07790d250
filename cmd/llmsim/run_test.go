package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/terminal"
	"llmmemory/internal/testkit/level"
)

// Ensure that equal commands print the same output. The output must name what was run.
func TestRunIsReproducible(t *testing.T) {
	args := []string{"run", "--system", "sosp", "--rate", "2", "--duration", "200", "--seed", "5"}
	status, first, stderr := llmsim(t, args...)
	require.Zero(t, status, stderr)
	narrow(t, first)
	_, second, _ := llmsim(t, args...)
	require.Equal(t, first, second)
	for _, part := range []string{"sosp: the paper's own vLLM", "983 blocks of 16 tokens (15728 slots), 1638 on the CPU",
		"normalized latency", "token states", "tokens/s of answers, until the last one\n"} {
		require.Contains(t, first, part)
	}
	_, other, _ := llmsim(t, append(args[:len(args)-1], "6")...)
	require.NotEqual(t, first, other)
	_, stopped, _ := llmsim(t, append(args, "--stop")...)
	require.Contains(t, stopped, "tokens/s of answers, until the run was stopped\n")
}

// Ensure that the scenario in the JSON output is complete: running it again must give the same result.
func TestRunAsJSON(t *testing.T) {
	for _, args := range [][]string{
		{"--system", "orca-pow2", "--rate", "3", "--duration", "100"},
		{"--workload", "alpaca", "--system", "sosp", "--samples", "3", "--beam", "--rate", "5", "--duration", "60"},
		{"--model", "llama-3-8b", "--gpu", "a100-40gb", "--drafts", "3", "--duration", "60"},
		{"--system", "vllm-v0", "--watermark", "-1", "--swap", "--rate", "4", "--duration", "100", "--from", "20", "--until",
			"90", "--stop"},
	} {
		status, stdout, stderr := llmsim(t, append([]string{"run", "--json"}, args...)...)
		require.Zero(t, status, stderr)
		var got struct {
			Scenario scenario.Scenario
			Result   sim.Result
		}
		require.NoError(t, json.Unmarshal([]byte(stdout), &got))
		require.Positive(t, got.Result.Answered)
		again, err := scenario.Run(t.Context(), got.Scenario)
		require.NoError(t, err)
		require.Equal(t, got.Result, *again, "%v", args)
	}
}

// Ensure that a trace can be run. The error for a bad row must come before any output.
func TestATraceRunsAndABadRowIsNamed(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good.csv")
	require.NoError(t, os.WriteFile(good, []byte("arrival,prompt,output\n0,100,10\n1,100,10\n2.5,3000,10\n"), 0o600))
	status, stdout, stderr := llmsim(t, "run", "--trace", good)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "2 of 3 requests")
	require.Contains(t, stdout, "1 refused, 0 dropped")
	require.Contains(t, stdout, "no sequence has more than 2048")
	require.NotContains(t, stdout, "most of them")
	_, stdout, _ = llmsim(t, "run", "--trace", good, "--max-len", "50", "--max-tokens", "50")
	require.Contains(t, stdout, "These are most of them: take a model for longer sequences")
	_, stdout, _ = llmsim(t, "run", "--trace", good, "--system", "vllm-v0")
	require.Contains(t, stdout, "0 refused, 1 dropped")
	require.NotContains(t, stdout, "first refusal", "V0 gives no reason")

	burst := filepath.Join(dir, "burst.csv")
	require.NoError(t, os.WriteFile(burst,
		[]byte("Timestamp,Request tokens,Response tokens\n0,100,10\n1,100,0\n2,30,10\n3,30,10\n"), 0o600))
	status, stdout, stderr = llmsim(t, "run", "--trace", burst, "--requests", "2")
	require.Zero(t, status, stderr)
	said := strings.Join(strings.Fields(stdout), " ")
	require.Contains(t, said, "3 requests in 3 s, means 53 and 10 tokens; 1 rows with 0 tokens of prompt or answer are "+
		"left out; the first 2 are served")
	require.Contains(t, said, "2 of 2 requests")

	bad := filepath.Join(dir, "bad.csv")
	require.NoError(t, os.WriteFile(bad, []byte("arrival,prompt,output\n0,100,10\n1,ten,10\n"), 0o600))
	status, stdout, stderr = llmsim(t, "run", "--trace", bad)
	require.Equal(t, 1, status)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "bad.csv:3:")
	require.Contains(t, stderr, `"prompt"`)
}

// Ensure that equal hashes in a Mooncake trace cause prefix hits. The trace has 24 conversations, in which
// each prompt begins with the blocks of the previous prompt.
func TestMooncakeHashesMakePrefixHits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mooncake.jsonl")
	var text strings.Builder
	next := 0
	for round := range 4 {
		for user := range 24 {
			fmt.Fprintf(&text, `{"timestamp": %d, "input_length": %d, "output_length": 20, "hash_ids": [`, 1000*(24*round+user),
				512*(round+1))
			for k := range round + 1 {
				if k > 0 {
					text.WriteString(", ")
				}
				fmt.Fprint(&text, 100*user+k)
			}
			text.WriteString("]}\n")
			next++
		}
	}
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o600))
	result := func(args ...string) (r struct{ Result sim.Result }) {
		status, stdout, stderr := llmsim(t, append([]string{"run", "--json", "--trace", path, "--setup", "llama-3-8b"},
			args...)...)
		require.Zero(t, status, stderr)
		require.NoError(t, json.Unmarshal([]byte(stdout), &r))
		require.Equal(t, next, r.Result.Answered)
		return r
	}
	// In rounds 1, 2 and 3, a prompt has 1, 2 and 3 blocks of 512 tokens in common with the prompt of the previous
	// round.
	require.Equal(t, 24*512*(1+2+3), result().Result.Hits)
	require.Zero(t, result("--no-caching").Result.Hits)
	require.Equal(t, 24*512*(1+2+3), result("--system", "vllm-v0", "--caching").Result.Hits)
	require.Less(t, result("--blocks", "300").Result.Hits, 24*512*6, "a small pool evicts")
}

func TestFiguresAreWrittenAndCompared(t *testing.T) {
	level.SkipQuick(t)
	dir := filepath.Join(t.TempDir(), "figures")
	status, stdout, stderr := llmsim(t, "figures", "--only", "table1,fig2", "--seeds", "2", "--check", "-o", dir)
	require.Zero(t, status, stderr)
	require.Contains(t, stdout, "15728 (983 blocks of 16)")
	require.Contains(t, stdout, "predicted: 17 of 17 within their tolerance")
	for _, name := range []string{"index.html", "fig02-memory-waste.svg", "fig02-memory-waste.png",
		"fig02-memory-waste.csv"} {
		require.FileExists(t, filepath.Join(dir, name))
	}
}

func TestListNamesAllThatCanBeChosen(t *testing.T) {
	status, stdout, _ := llmsim(t, "list")
	require.Zero(t, status)
	for _, name := range append(sim.Systems(), "sharegpt", "paper-opt-13b", "llama-3-8b", "h100-80gb") {
		require.Contains(t, stdout, name)
	}
	narrow(t, stdout)
}

func narrow(t *testing.T, text string) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		require.LessOrEqual(t, utf8.RuneCountInString(line), terminal.Columns, line)
	}
}

func TestClientsThatWait(t *testing.T) {
	status, out, _ := llmsim(t, "run", "--rate", "inf", "--max-concurrency", "8", "--requests", "100", "--goodput",
		"ttft<1s,tpot<60ms")
	require.Zero(t, status)
	require.Contains(t, out, "100 of 100 requests")
	require.Contains(t, out, "goodput")
	status, out, _ = llmsim(t, "run", "--rate", "1", "--turns", "3", "--think", "5", "--requests", "60", "--setup",
		"llama-3-8b")
	require.Zero(t, status)
	require.Contains(t, out, "prefix hits")
}

// Ensure that the output states what the run assumes about drafts, beams and samples: for drafts, the probability that
// one is right, and the time that drafting takes.
func TestRunSaysWhatItAssumesOfAnswers(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"drafts", []string{"--drafts", "3"},
			"3 draft tokens for each decode, each right with the assumed probability 0.7; drafting takes no time: " +
				"--draft-time adds"},
		{"drafts that take time", []string{"--drafts", "3", "--draft-time", "0.002"}, "drafting adds 2 ms to an iteration"},
		{"a beam", []string{"--system", "sosp", "--samples", "2", "--beam"},
			"beams of width 2, each replaced at a token with the assumed probability 0.075"},
		{"samples", []string{"--samples", "2"}, "answers 2 to each prompt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, out, stderr := llmsim(t, append([]string{"run", "--requests", "2", "--workload", "alpaca"}, c.args...)...)
			require.Zero(t, status, stderr)
			require.Contains(t, strings.Join(strings.Fields(out), " "), c.want)
			narrow(t, out)
		})
	}
}

func TestAWindowWithoutIterationsHasNoAverages(t *testing.T) {
	status, stdout, stderr := llmsim(t, "run", "--requests", "5", "--from", "100000")
	require.Equal(t, 0, status, stderr)
	require.Contains(t, stdout, "no iteration: none is between --from and --until")
	require.NotContains(t, stdout, "batch")
}
