package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/fleet"
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
	require.Regexp(t, `served/s: until the last answer, after \d+(\.\d+)?( to \d+(\.\d+)?)? s`, out)
	narrow(t, out)

	status, out, stderr = llmsim(t, append(args, "--router", "prefix,random", "--json")...)
	require.Zero(t, status, stderr)
	var got struct{ Routers []routed }
	require.NoError(t, json.Unmarshal([]byte(out), &got))
	require.Len(t, got.Routers, 2)
	require.Greater(t, got.Routers[0].Result.HitRate(), got.Routers[1].Result.HitRate())
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
