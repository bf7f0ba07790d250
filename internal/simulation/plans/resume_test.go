package plans

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/capacity"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/testkit/level"
)

func small(t *testing.T) Question {
	q := question(t, "0.1s/token", scenario.Scenario{Machine: scenario.Machine{Setup: "roofline-opt-13b"},
		Load: scenario.Load{Workload: "alpaca"}, Server: sim.Server{MaxNumSeqs: 4}})
	q.Precision, q.Lasts = 0.2, capacity.Horizon{Seconds: 60, Answers: 8}
	return q
}

func kept(t *testing.T, path string) int {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return bytes.Count(text, []byte("\n"))
}

// Ensure that a plan gives the same answer if it is interrupted and resumed.
func TestAPlanGoesOnWhereItWasStopped(t *testing.T) {
	level.SkipQuick(t)
	q := small(t)
	want := words(t, size(t, q))
	q.Folder = t.TempDir()
	file := filepath.Join(q.Folder, "runs.jsonl")

	ctx, stop := context.WithCancel(context.Background())
	q.Progress = func(done, _ int) {
		if done == 5 {
			stop()
		}
	}
	_, err := Size(ctx, q)
	require.ErrorIs(t, err, context.Canceled)
	q.Progress = nil
	first := kept(t, file)
	require.Positive(t, first)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, text[:len(text)-7], 0o600), "as a killed one leaves it")

	require.Equal(t, want, words(t, size(t, q)))
	all := kept(t, file)
	require.Greater(t, all, first)
	again := size(t, q)
	require.Equal(t, want, words(t, again))
	require.Equal(t, all, kept(t, file), "nothing is run again")
	require.Regexp(t, `^[1-9]\d* of the [1-9]\d* runs kept in .* were taken, 0 were added$`, again.Kept)
	var taken, there int
	_, err = fmt.Sscanf(again.Kept, "%d of the %d", &taken, &there)
	require.NoError(t, err)
	require.LessOrEqual(t, taken, there)
}

func TestTheFirstErrorStopsTheOthers(t *testing.T) {
	full := errors.New("no space left on device")
	waits := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	err := concurrently(context.Background(), waits, func(context.Context) error { return full }, waits)
	require.Equal(t, full, err)
	require.NoError(t, concurrently(context.Background(), func(context.Context) error { return nil }))
}
