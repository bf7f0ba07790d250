package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// Ensure that bench writes the steps of a GPU to the file for llmsim calibrate. Over all steps, the sum of the column
// batch must be the number of generated tokens. The sum of the column prompt must be the number of tokens in all
// prompts.
func TestBenchWritesTheStepsOfAGPU(t *testing.T) {
	level.SkipNormal(t)
	d := emulated(t, 64)
	file := filepath.Join(t.TempDir(), "steps.csv")
	runHere(t, "bench", tinyFile(t), "--device", "cuda", "--kv-cache-gb", kvOfBlocks(20), "--max-model-len", "64", "--num-prompts", "4", "--input-len", "9",
		"--output-len", "5", "--max-concurrency", "2", "--steps", file)
	require.NotZero(t, d.Calls("cuLaunchKernel"))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Equal(t, "batch,context,prompt,seconds", lines[0])
	var sums [4]float64
	for _, line := range lines[1:] {
		for i, field := range strings.Split(line, ",") {
			v, err := strconv.ParseFloat(field, 64)
			require.NoError(t, err)
			sums[i] += v
		}
		require.NotContains(t, line, ",0.000000000", "a step that takes no time")
	}
	require.Equal(t, 4.0*5, sums[0], "tokens that were generated")
	require.Equal(t, 4.0*9, sums[2], "tokens of prompts")
}
