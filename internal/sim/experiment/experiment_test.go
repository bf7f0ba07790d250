package experiment

import (
	"context"
	"errors"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/chart"
	"llmmemory/internal/sim/cost"
	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/testkit/level"
)

// Ensure that every comparison with the paper holds, at reduced length. A normal run
// leaves out figures that take long and whose systems other figures have.
func TestEveryComparisonWithThePaperHolds(t *testing.T) {
	level.SkipQuick(t)
	o := Options{Quick: true, Only: []string{"table1", "fig1", "fig2", "fig11", "fig12", "fig17", "cost"}}
	if level.Long() {
		o = Options{Quick: true, Full: true}
	}
	report, err := Run(context.Background(), o)
	require.NoError(t, err)
	for _, c := range report.Checks {
		require.True(t, c.OK, "%+v", c)
	}
	require.Equal(t, level.Pick(552, 616), len(report.Checks))
	require.Equal(t, level.Pick(7, 21), len(report.Figures))
	require.NoError(t, chart.Write(t.TempDir(), report.Figures, report.Checks...))
}

// Ensure that the systems of a figure share the requests of a seed: the more systems, not the more memory.
func TestSystemsShareTheRequestsOfASeed(t *testing.T) {
	most := func(systems int) uint64 {
		live := func() uint64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			return m.HeapAlloc
		}
		before, highest := live(), uint64(0)
		b := &bench{lab: newLab(context.Background(), 1, func() { highest = max(highest, live()) })}
		_, err := b.curves(scenario.Scenario{Workload: "alpaca", Duration: 150},
			slices.Repeat([]string{"fastertransformer"}, systems), seedsFrom1(1))
		require.NoError(t, err)
		return highest - before
	}
	require.Less(t, most(6), 2*most(2))
}

// Ensure that neither the number of runs at once nor what was run before changes
// anything.
func TestFiguresDoNotDependOnTheNumberOfJobs(t *testing.T) {
	level.SkipQuick(t)
	only := level.Pick([]string{"table1", "fig17"}, []string{"fig2", "fig17"})
	one, err := Run(context.Background(), Options{Quick: true, Only: only, Jobs: 1})
	require.NoError(t, err)
	many, err := Run(context.Background(), Options{Quick: true, Only: only, Jobs: 7})
	require.NoError(t, err)
	require.Equal(t, one, many)
	alone, err := Run(context.Background(), Options{Quick: true, Only: only[1:]})
	require.NoError(t, err)
	require.Equal(t, one.Figures[len(one.Figures)-1:], alone.Figures)
}

// Ensure that more seeds are taken if asked for, and other numbers come out.
func TestMoreSeedsGiveOtherNumbers(t *testing.T) {
	level.SkipQuick(t)
	few, err := Run(context.Background(), Options{Only: []string{"fig2"}, Seeds: 1})
	require.NoError(t, err)
	many, err := Run(context.Background(), Options{Only: []string{"fig2"}, Seeds: 2})
	require.NoError(t, err)
	a := few.Figures[0].Panels[0].Data.(chart.Stacks).Columns[0].Parts[0]
	b := many.Figures[0].Panels[0].Data.(chart.Stacks).Columns[0].Parts[0]
	require.Equal(t, 1, a.Seeds)
	require.Equal(t, 2, b.Seeds)
	require.NotEqual(t, a.Mean, b.Mean)
	require.Equal(t, "seed 1, 900 s", few.Figures[0].Seeds)
	require.Equal(t, "seeds 1 to 2, 900 s", many.Figures[0].Seeds)
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
		{"inside", func(b *bench) { b.checkWithinRange(chart.Predicted, "", "", value(4), 5, math.Inf(1)) }, false},
	} {
		var b bench
		c.check(&b)
		require.Equal(t, c.ok, b.report.Checks[0].OK, "%+v", b.report.Checks[0])
		require.Equal(t, !c.ok, b.report.Misses() == 1)
	}
	v := mean([]float64{1, 3}, nil)
	require.Equal(t, chart.Value{Mean: 2, SD: math.Sqrt2, Seeds: 2}, v)
	require.Equal(t, "2.00 ± 1.41", meanAndSD(v))
	require.Zero(t, mean([]float64{0.1, 0.1, 0.1}, nil).SD)
}

// Ensure that the cause of a miss excuses the points that it is about, and no others.
func TestACauseIsOfFewPoints(t *testing.T) {
	of := func(engine, gpu, model, dtype, metric string, prompt, output, batch int) cost.Published {
		return cost.Published{Engine: engine, GPU: gpu, Model: model, DType: dtype, Metric: metric, Prompt: prompt,
			Output: output, Batch: batch}
	}
	for _, c := range []struct {
		name  string
		point cost.Published
		want  string
	}{
		{"a single sequence", of("vllm", "rtx-6000-ada", "llama-3-8b", "bf16", "first_token_ms", 28634, 1, 1), "A6000"},
		{"a short one", of("vllm", "rtx-6000-ada", "llama-3-8b", "bf16", "first_token_ms", 255, 1, 1), ""},
		{"long sequences in fp8", of("tensorrt-llm", "h100-80gb", "llama-2-70b", "fp8", "tokens_per_s", 2048, 2048, 64),
			"in fp8"},
		{"on another GPU", of("tensorrt-llm", "h200-141gb", "llama-2-70b", "fp8", "tokens_per_s", 2048, 2048, 64), ""},
		{"short ones", of("tensorrt-llm", "h100-80gb", "llama-2-70b", "fp8", "tokens_per_s", 128, 128, 64), ""},
		{"in 16 bits", of("tensorrt-llm", "h100-80gb", "llama-2-70b", "fp16", "tokens_per_s", 2048, 2048, 64), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cause, most := missCause(c.point)
			require.Contains(t, cause, c.want)
			require.Equal(t, c.want == "", cause == "")
			require.Equal(t, c.want == "", most == 0)
		})
	}
}

// Ensure that each figure is handed out when it is done, and that progress counts figures, whose number is known.
func TestFiguresAreHandedOutAsTheyAreDone(t *testing.T) {
	var drawn []string
	var totals []int
	report, err := Run(context.Background(), Options{Only: []string{"fig1", "fig11", "fig2"}, Quick: true, Seeds: 1,
		Progress: func(done, all int) {
			require.Less(t, done, all)
			totals = append(totals, all)
		},
		Drawn: func(f chart.Figure) error {
			drawn = append(drawn, f.Name)
			return nil
		}})
	require.NoError(t, err)
	require.Len(t, drawn, len(report.Figures))
	for i, f := range report.Figures {
		require.Equal(t, f.Name, drawn[i])
	}
	require.NotEmpty(t, totals)
	for _, all := range totals {
		require.Equal(t, 3, all)
	}
	full := errors.New("no space left on device")
	_, err = Run(context.Background(), Options{Only: []string{"fig11"}, Drawn: func(chart.Figure) error { return full }})
	require.ErrorIs(t, err, full)
}
