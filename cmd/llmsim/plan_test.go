package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func TestPlanWritesWhatItSays(t *testing.T) {
	level.SkipQuick(t)
	dir := filepath.Join(t.TempDir(), "plan")
	args := []string{"--trace", "testdata/bursts.csv", "--model", "llama-3-8b", "--gpu", "a100-40gb", "--slo",
		"ttft<2s@p99,tpot<40ms@p90", "--target", "3"}
	args = append([]string{"plan"}, args...)
	status, out, said := llmsim(t, append(args, "-o", dir)...)
	require.Zero(t, status, said)
	require.NotContains(t, said, "\r", "no terminal, no bar")
	require.Regexp(t, `^llama-3-8b on 1 x a100-40gb: [\d.]+ requests/s or more, most likely [\d.]+, under ttft<2s@p99,\s+tpot<40ms@p90 \(one trace, [\d.]+\s+times the trace's own\)\nlatency  `, out)
	require.Less(t, strings.Index(out, "\nlatency "), strings.Index(out, "\nlimit "))
	require.NotContains(t, out, "roofline, in ms")
	narrow(t, out)
	for _, word := range []string{"128 KiB a token", "runs of 1500 requests, one trace",
		"vllm 0.10-0.20 on a100-40gb: not fitted on this GPU; constants as measured on a100-80gb",
		"twice the KV memory", "\ntake  block size 16", "for 3.00/s"} {
		require.Contains(t, strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(word), " "))
	}
	_, again, _ := llmsim(t, args...)
	require.Equal(t, out, again)
	text, err := os.ReadFile(filepath.Join(dir, "plan.json"))
	require.NoError(t, err)
	var saved struct{ Verdict string }
	require.NoError(t, json.Unmarshal(text, &saved))
	answer, _, _ := strings.Cut(out, "\nlatency ")
	require.True(t, strings.HasPrefix(saved.Verdict, strings.ReplaceAll(answer, "\n ", "")+"; limited by "), saved.Verdict)
	page, err := os.ReadFile(filepath.Join(dir, "index.html"))
	require.NoError(t, err)
	first := strings.Index(string(page), `<p class="answer">llama-3-8b on 1 x a100-40gb: `)
	require.Positive(t, first)
	require.Less(t, first, strings.Index(string(page), "<figure"), "the answer comes first")
	require.FileExists(t, filepath.Join(dir, "plan-latency.svg"))
}

func TestAnInterruptedPlanSaysHowItGoesOn(t *testing.T) {
	dir := t.TempDir()
	cmd := program("plan", "--precision", "0.001", "-o", dir)
	var said strings.Builder
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		kept, err := os.Stat(filepath.Join(dir, "runs.jsonl"))
		return err == nil && kept.Size() > 0
	}, 10*time.Minute, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Contains(t, said.String(), "finished runs are kept in "+dir+": the same command resumes\nllmsim: interrupted\n")
}
