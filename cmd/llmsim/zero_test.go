package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAZeroThatIsGivenIsNotTakenForTheDefault(t *testing.T) {
	for _, name := range defaultedFlags {
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

func TestAWindowWithoutIterationsHasNoAverages(t *testing.T) {
	status, stdout, stderr := llmsim(t, "run", "--requests", "5", "--from", "100000")
	require.Equal(t, 0, status, stderr)
	require.Contains(t, stdout, "no iteration: none is between --from and --until")
	require.NotContains(t, stdout, "batch")
}

func TestWhatNothingHoldsIsAFailure(t *testing.T) {
	for _, args := range [][]string{
		{"cheapest", "--model", "llama-3-8b", "--gpus", "l4", "--target", "1", "--slo", "ttft<1ms"},
		{"disaggregate", "--model", "llama-3-8b", "--gpu", "l4", "--servers", "2", "--seconds", "60", "--slo", "ttft<1ms"},
	} {
		status, stdout, stderr := llmsim(t, args...)
		require.Equal(t, 1, status, stdout)
		require.Contains(t, stdout, "hold")
		require.Contains(t, stderr, "nothing holds ttft<0.001s")
	}
}
