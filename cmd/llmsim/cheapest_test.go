package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheapestRefusesWhatCannotBe(t *testing.T) {
	for _, c := range []struct {
		name    string
		args    []string
		wantErr string
	}{
		{"no target", []string{"--model", "llama-3-8b"}, "target"},
		{"a target of 0", []string{"--model", "llama-3-8b", "--target", "0"}, "above 0"},
		{"no model", []string{"--target", "1"}, "model"},
		{"an objective that is none", []string{"--model", "llama-3-8b", "--target", "1", "--slo", "fast"}, "bad objective"},
		{"prices there are not", []string{"--model", "llama-3-8b", "--target", "1", "--prices", "no-such.json"},
			"no-such.json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, _, stderr := llmsim(t, append([]string{"cheapest"}, c.args...)...)
			require.Equal(t, 1, status)
			require.Contains(t, stderr, c.wantErr)
		})
	}
}

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
