package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// A GPU's file is priced by the name in it, which its path is not.
func TestTheFileOfAGPUIsPricedByItsName(t *testing.T) {
	dir := t.TempDir()
	gpu, prices := filepath.Join(dir, "mine.json"), filepath.Join(dir, "prices.json")
	text, err := os.ReadFile("../../internal/sim/cost/gpus/l4.json")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(gpu, []byte(strings.Replace(string(text), `"l4"`, `"half-price-l4"`, 1)), 0o600))
	require.NoError(t, os.WriteFile(prices, []byte(`{"gpus":{"half-price-l4":{"dollars_per_hour":1}}}`), 0o600))
	_, stdout, stderr := llmsim(t, "cheapest", "--model", "llama-3-8b", "--gpus", gpu, "--target", "1", "--slo",
		"ttft<1ms", "--prices", prices)
	require.NotContains(t, stdout+stderr, "no price")
	require.NotContains(t, stderr, "no GPU is called")
	require.Contains(t, stderr, "nothing holds")
}

func TestWhatNothingHoldsIsAFailure(t *testing.T) {
	level.SkipQuick(t)
	args := strings.Fields("cheapest --model llama-3-8b --gpus l4 --target 1 --slo ttft<1ms")
	status, stdout, stderr := llmsim(t, args...)
	require.Equal(t, 1, status, stdout)
	require.Contains(t, stdout, "hold")
	require.Contains(t, stderr, "nothing holds ttft<1ms")
	status, stdout, stderr = llmsim(t, append(args, "--json")...)
	require.Equal(t, 1, status, stdout)
	require.True(t, json.Valid([]byte(stdout)), stdout)
	require.Contains(t, stderr, "nothing holds ttft<1ms")
}

func TestAPriceThatNoGPUHasIsWarnedOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prices.json")
	require.NoError(t, os.WriteFile(path,
		[]byte(`{"gpus":{"l4":{"watts":72},"h100-80g":{"watts":700},"something-else":{"watts":1}}}`), 0o644))
	var said strings.Builder
	prices, err := openPrices(&said, path, "l4", "absent.json")
	require.NoError(t, err)
	require.Len(t, prices.GPUs, 3)
	require.Equal(t, "llmsim: prices "+path+": no GPU is called \"h100-80g\"; did you mean h100-80gb?\n"+
		"llmsim: prices "+path+": no GPU is called \"something-else\"\n", said.String())
	said.Reset()
	_, err = openPrices(&said, "")
	require.NoError(t, err)
	require.Empty(t, said.String())
}
