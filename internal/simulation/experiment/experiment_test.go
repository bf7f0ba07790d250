package experiment

import (
	"context"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/runs"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

// Ensure that all checks pass. Neither the number of concurrent runs nor stored runs may change a report. make test-long
// omits slow figures if their systems also occur in other figures.
func TestEveryComparisonWithThePaperHolds(t *testing.T) {
	level.SkipNormal(t)
	o := Options{Quick: true, Only: []string{"table1", "fig1", "fig11", "fig12", "fig17", "cost"}}
	if level.Exhaustive() {
		o = Options{Quick: true, Full: true}
	}
	o.Progress = func(done, all int) {
		require.Less(t, done, all)
		require.Equal(t, level.Pick(6, len(figures)), all)
	}
	report, err := Run(context.Background(), o)
	require.NoError(t, err)
	for _, c := range report.Checks {
		require.True(t, c.OK, "%+v", c)
	}
	require.Equal(t, level.Pick(150, 228), len(report.Checks))
	require.Equal(t, level.Pick(5, 20), len(report.Figures))

	dir := t.TempDir()
	for i, kept := range []string{"0 of the 0 runs", "0 were added"} {
		store, err := runs.Open(dir, "")
		require.NoError(t, err)
		alone, err := Run(context.Background(), Options{Quick: true, Only: []string{"fig17"}, Jobs: 7, Runs: store})
		require.NoError(t, err)
		require.NoError(t, store.Close())
		require.Contains(t, report.Figures, alone.Figures[0])
		require.Contains(t, store.String(), kept, "run %d", i)
	}
}

// Ensure that a figure with more systems does not keep more requests in memory.
func TestSystemsShareTheRequestsOfASeed(t *testing.T) {
	allocated := func(systems int) float64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b := &bench{lab: newLab(context.Background(), 1, nil, func() {})}
		_, err := b.curves(scenario.Scenario{Load: scenario.Load{Workload: "alpaca", Duration: 150}},
			slices.Repeat([]string{"fastertransformer"}, systems), seedsFrom1(1))
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	allocated(1) // what is read once
	// If the systems did not share the requests, six systems would allocate 2.99 times as much as two. With sharing
	// they allocate 2.88 times as much. The test counts allocated bytes, because live bytes depend on when the
	// garbage collector runs.
	require.Less(t, allocated(6), 2.95*allocated(2))
}

func TestAnUnknownFigureIsRefused(t *testing.T) {
	_, err := Run(context.Background(), Options{Only: []string{"fig3"}})
	require.ErrorIs(t, err, ErrUnknown)
	require.ErrorContains(t, err, "want table1, fig1, fig2, fig11, fig12")
}

func TestACancelledFigureEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := Run(ctx, Options{Only: []string{"fig2"}})
	require.ErrorIs(t, err, context.Canceled)
}

func TestAComparisonMissesJustOutsideItsTolerance(t *testing.T) {
	value := func(v float64) chart.Value { return chart.Value{Mean: v, Seeds: 1} }
	for _, c := range []struct {
		name  string
		check func(b *bench)
		ok    bool
	}{
		{"near", func(b *bench) { b.checkWithinPercent(chart.Predicted, "", value(10.59), 10, 6) }, true},
		{"near", func(b *bench) { b.checkWithinPercent(chart.Predicted, "", value(10.61), 10, 6) }, false},
		{"near", func(b *bench) { b.checkWithinPercent(chart.Predicted, "", value(9.39), 10, 6) }, false},
		{"points", func(b *bench) { b.checkWithinPoints(chart.Predicted, "", value(22.4), 20, 2.5) }, true},
		{"points", func(b *bench) { b.checkWithinPoints(chart.Predicted, "", value(22.6), 20, 2.5) }, false},
		{"points", func(b *bench) { b.checkWithinPoints(chart.Predicted, "", value(17.4), 20, 2.5) }, false},
		{"inside", func(b *bench) { b.checkWithinRange(chart.Predicted, "", "", value(1.5), 1.5, 1.9) }, true},
		{"inside", func(b *bench) { b.checkWithinRange(chart.Predicted, "", "", value(1.91), 1.5, 1.9) }, false},
	} {
		var b bench
		c.check(&b)
		require.Equal(t, c.ok, b.report.Checks[0].OK, "%+v", b.report.Checks[0])
		require.Equal(t, !c.ok, b.report.Misses() == 1)
	}
	require.Equal(t, "2.00 ± 1.41", meanAndSD(chart.Average([]float64{1, 3})))
}
