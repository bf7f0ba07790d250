package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func TestAZeroThatIsGivenIsNotTakenForTheDefault(t *testing.T) {
	for _, name := range defaultedFlags {
		if name == "steps" { // view's, which runs nothing then
			continue
		}
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := llmsim(t, "run", "--requests", "2", "--"+name, "0")
			require.Equal(t, 1, status, stdout)
			require.Contains(t, stderr, "--"+name+" 0: want more than 0")
		})
	}
	status, _, stderr := llmsim(t, "run", "--rate", "inf", "--requests", "2")
	require.Equal(t, 0, status, stderr)
}

// 100,000 seeds took 24 GB and brought the machine to a halt.
func TestMoreSeedsThanMemoryHoldsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"plan", "--seeds", "100000"},
		{"cheapest", "--model", "llama-3-8b", "--target", "1", "--seeds", "100000"},
	} {
		status, _, stderr := llmsim(t, args...)
		require.Equal(t, 1, status)
		require.Regexp(t, `--seeds 100000.*want 1 to \d+ seeds`, stderr)
	}
}

func TestAWatermarkOfZeroIsNotTakenForTheDefault(t *testing.T) {
	status, _, stderr := llmsim(t, "run", "--requests", "2", "--watermark", "0")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "--watermark 0: want more than 0, or -1 for none")
}

func TestAWatermarkIsAPartOfTheBlocks(t *testing.T) {
	for _, watermark := range []string{"1", "2", "-2", "-0.01", "NaN", "+Inf"} {
		for _, system := range []string{"sosp", "vllm-v0", "vllm-v1"} {
			status, _, stderr := llmsim(t, "run", "--requests", "2", "--system", system, "--watermark="+watermark)
			require.Equal(t, 1, status, "%s %s", system, watermark)
			require.Contains(t, stderr, "want a part of the blocks, more than 0 and less than 1, or -1 for none")
		}
	}
	status, _, stderr := llmsim(t, "plan", "--watermark", "1.5")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "a watermark of 1.5")
	status, _, stderr = llmsim(t, "run", "--requests", "2", "--watermark", "0.99")
	require.Equal(t, 0, status, stderr)
}

func TestAPrecisionThatCannotBeMeantIsRefused(t *testing.T) {
	for _, precision := range []string{"0", "1", "NaN"} {
		status, _, stderr := llmsim(t, "cheapest", "--model", "llama-3-8b", "--target", "1", "--precision", precision)
		require.Equal(t, 1, status)
		require.Contains(t, stderr, "a precision between 0 and 1")
	}
}

func TestAWindowWithoutIterationsHasNoAverages(t *testing.T) {
	status, stdout, stderr := llmsim(t, "run", "--requests", "5", "--from", "100000")
	require.Equal(t, 0, status, stderr)
	require.Contains(t, stdout, "no iteration: none is between --from and --until")
	require.NotContains(t, stdout, "batch")
}

func TestWhatNothingHoldsIsAFailure(t *testing.T) {
	level.SkipQuick(t)
	for _, args := range [][]string{
		{"cheapest", "--model", "llama-3-8b", "--gpus", "l4", "--target", "1", "--slo", "ttft<1ms"},
	} {
		status, stdout, stderr := llmsim(t, args...)
		require.Equal(t, 1, status, stdout)
		require.Contains(t, stdout, "hold")
		require.Contains(t, stderr, "nothing holds ttft<1ms")
		status, stdout, stderr = llmsim(t, append(args, "--json")...)
		require.Equal(t, 1, status, stdout)
		require.True(t, json.Valid([]byte(stdout)), stdout)
		require.Contains(t, stderr, "nothing holds ttft<1ms")
	}
}

func TestGPUsWithoutAPriceAreNotSaidToMissTheObjective(t *testing.T) {
	status, stdout, stderr := llmsim(t, "cheapest", "--model", "llama-3-8b", "--gpus", "rtx-3090,a800-80gb", "--target",
		"1")
	require.Equal(t, 1, status)
	require.NotContains(t, stdout+stderr, "hold")
	require.Contains(t, stderr, "rtx-3090, a800-80gb: no price is known")
	status, _, stderr = llmsim(t, "cheapest", "--model", "llama-3-8b", "--gpus", "nosuch", "--target", "1")
	require.Equal(t, 1, status)
	require.Contains(t, stderr, "nosuch")
	require.NotContains(t, stderr, "price", "it is no GPU")
}
