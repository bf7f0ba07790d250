package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/sim/fleet"
	"llmmemory/internal/testkit/level"
)

func TestFleetComparesRouters(t *testing.T) {
	args := []string{"fleet", "--model", "llama-3-8b", "--gpu", "l4", "--replicas", "3", "--rate", "1", "--turns", "3",
		"--think", "5", "--duration", "120"}
	status, out, stderr := llmsim(t, append(args, "--router", "all")...)
	require.Zero(t, status, stderr)
	for _, r := range fleet.Routers() {
		require.Contains(t, out, string(r))
	}
	narrow(t, out)

	status, out, stderr = llmsim(t, append(args, "--router", "prefix,random", "--json")...)
	require.Zero(t, status, stderr)
	var got struct{ Routers []routed }
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Len(t, got.Routers, 2)
	require.Greater(t, got.Routers[0].Result.HitRate(), got.Routers[1].Result.HitRate())
	require.Positive(t, got.Routers[0].Result.Dollars)
}

func TestFleetMixesGPUs(t *testing.T) {
	level.SkipQuick(t)
	status, out, stderr := llmsim(t, strings.Fields("fleet --model llama-3-8b --gpu l4 --rate 4 --duration 100 "+
		"--also h100-80gb:1 --goodput ttft<1s")...)
	require.Zero(t, status, stderr)
	for _, want := range []string{"1 of 1 x h100-80gb", "vllm 0.10-0.20 on h100-80gb", "goodput"} {
		require.Contains(t, out, want)
	}
	narrow(t, out)
}

// A fleet of which one GPU has no price was said to cost what the others do.
func TestFleetSaysWhichGPUsHaveNoPrice(t *testing.T) {
	prices := filepath.Join(t.TempDir(), "prices.json")
	require.NoError(t, os.WriteFile(prices,
		[]byte(`{"gpus":{"l4":{"dollars_per_hour":1,"watts":72},"h100-80g":{"dollars_per_hour":3,"watts":700}}}`), 0o600))
	fleet := []string{"fleet", "--model", "llama-3-8b", "--gpu", "l4", "--rate", "2", "--duration", "50", "--prices",
		prices}
	status, out, stderr := llmsim(t, fleet...)
	require.Zero(t, status, stderr)
	require.Contains(t, stderr, "did you mean h100-80gb?")
	require.NotContains(t, out, "no price")
	require.Regexp(t, `least-loaded .* 0\.0\d{3,}\n`, out, "kWh with three digits that count, of little too")
	require.Regexp(t, `served/s: until the last answer, after \d+(\.\d+)? s`, out)
	status, out, stderr = llmsim(t, append(fleet, "--also", "h100-80gb:1")...)
	require.Zero(t, status, stderr)
	require.Contains(t, out, "h100-80gb: no price is known: put one into a file for --prices")
	require.Regexp(t, `least-loaded .* - +-\n`, out)
	narrow(t, out)
}
