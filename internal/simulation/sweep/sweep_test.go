package sweep

import (
	"context"
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/runs"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
)

func run(t *testing.T, dir string, s *Sweep, maxRuns int) (*State, []Job) {
	t.Helper()
	store, err := runs.Open(dir, s.Grid.Base.Trace)
	require.NoError(t, err)
	var ran []Job
	st, err := s.Run(context.Background(), store, maxRuns, func(o *Outcome, fresh bool) {
		if fresh {
			ran = append(ran, o.Job)
		}
	})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	return st, ran
}

func table(t *testing.T, st *State) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, st.Write(dir, DefaultSLO))
	text, err := os.ReadFile(filepath.Join(dir, "sweep.csv"))
	require.NoError(t, err)
	return string(text)
}

// Ensure that an interrupted and resumed sweep gives the same table as a complete one.
func TestWhatIsThereIsNotRunAgain(t *testing.T) {
	whole, ran := run(t, t.TempDir(), open(t, grid()), 3)
	require.Len(t, ran, 8)
	dir, half := t.TempDir(), grid()
	half.Systems = half.Systems[:1]
	_, ran = run(t, dir, open(t, half), 1)
	require.Len(t, ran, 4)
	st, ran := run(t, dir, open(t, grid()), 2)
	require.Len(t, ran, 4)
	require.Equal(t, table(t, whole), table(t, st))
	st, ran = run(t, dir, open(t, grid()), 1)
	require.Empty(t, ran)
	require.Equal(t, table(t, whole), table(t, st))
}

func TestAnInterruptedSweepHasTheContextsError(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	_, err := open(t, grid()).Run(ctx, nil, 1, func(*Outcome, bool) { stop() })
	require.ErrorIs(t, err, context.Canceled)
}

// Ensure that a failed job does not stop the others, and appears in the table with its error.
func TestWhatFailedIsRunAgain(t *testing.T) {
	files := t.TempDir()
	const text = `{"model": "opt-13b", "gpu": "a100-40gb", "workers": 1}`
	g := grid()
	g.Base.Setup = write(t, files, "setup.json", text)
	s := open(t, g)
	dir := t.TempDir()
	require.NoError(t, os.Remove(g.Base.Setup))
	st, ran := run(t, dir, s, 2)
	require.Len(t, ran, 8)
	require.Len(t, st.Failed(), 8)
	rows, err := csv.NewReader(strings.NewReader(table(t, st))).ReadAll()
	require.NoError(t, err)
	require.Contains(t, rows[1][4], "no such file")
	require.Equal(t, "0", strings.Join(rows[1][5:], ""), "the concurrency is known")

	write(t, files, "setup.json", text)
	st, ran = run(t, dir, s, 2)
	require.Len(t, ran, 8)
	require.Empty(t, st.Failed())
}

func TestAResultIsTakenOnlyForTheSameRun(t *testing.T) {
	const rows = "arrival,prompt,output\n0,10,2\n1,10,2\n"
	dir, files := t.TempDir(), t.TempDir()
	trace := write(t, files, "a.csv", rows)
	setup := write(t, files, "setup.json", `{"model": "model.json", "gpu": "a100-40gb", "workers": 1}`)
	model, err := os.ReadFile("../cost/llms/opt-13b.json")
	require.NoError(t, err)
	write(t, files, "model.json", string(model))
	ran := func(change func(*Grid)) int {
		g := grid()
		g.Systems, g.Rates, g.Seeds = g.Systems[:1], g.Rates[:1], g.Seeds[:1]
		change(&g)
		_, fresh := run(t, dir, open(t, g), 1)
		return len(fresh)
	}
	withTrace := func(g *Grid) { g.Base.Trace, g.Base.Duration = trace, 0 }
	withSetup := func(g *Grid) { g.Base.Setup = setup }
	for _, c := range []struct {
		name   string
		change func(*Grid)
		before func()
	}{
		{"as it is", func(*Grid) {}, nil},
		{"duration", func(g *Grid) { g.Base.Duration = 5 }, nil},
		{"workload", func(g *Grid) { g.Base.Workload = "alpaca" }, nil},
		{"window", func(g *Grid) { g.Base.From = 1 }, nil},
		{"memory", func(g *Grid) { g.Base.Server.NumGPUBlocks = 900 }, nil},
		{"decoding", func(g *Grid) { g.Base.Decoding.Samples = 2 }, nil},
		{"setup", func(g *Grid) { g.Base.Setup = "paper-llama-13b" }, nil},
		{"trace", withTrace, nil},
		{"another trace in the same file", withTrace, func() { write(t, files, "a.csv", rows+"2,10,2\n") }},
		{"setup file", withSetup, nil},
		{"another GPU in the same file", withSetup, func() {
			write(t, files, "setup.json", `{"model": "model.json", "gpu": "a100-80gb", "workers": 1}`)
		}},
	} {
		if c.before != nil {
			c.before()
		}
		require.Equal(t, 1, ran(c.change), c.name)
		require.Zero(t, ran(c.change), c.name)
	}
	copied := write(t, t.TempDir(), "copy.csv", rows+"2,10,2\n")
	require.Zero(t, ran(func(g *Grid) { g.Base.Trace, g.Base.Duration = copied, 0 }), "the same text at another place")
	require.Zero(t, ran(func(g *Grid) { g.Base.Workload, g.Base.Setup = "sharegpt", scenario.PaperSetup }),
		"a default that is written down")
}

func TestTheTableHasAllNumbers(t *testing.T) {
	r := &sim.Result{Seconds: 8, Iterations: 5, Answered: 4, Generated: 40, SwapBlocks: 7,
		Normalized: sim.Spread{P99: 0.25}, EndToEnd: sim.Spread{Max: 3}, TTFT: sim.Spread{Mean: 0.1},
		TPOT: sim.Spread{P50: 0.03}, Window: sim.Window{Saving: 0.5}}
	s := &Sweep{Jobs: []Job{{System: "sosp", BlockSize: 16, Rate: 0.75, Seed: 3}}}
	st := &State{Sweep: s, Outcomes: []*Outcome{{Job: s.Jobs[0], measured: measured{Result: r}}}}
	var b strings.Builder
	require.NoError(t, st.writeCSV(&b))
	rows, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	require.NoError(t, err)
	spread := func(name string) string {
		return strings.ReplaceAll("?_mean ?_p50 ?_p90 ?_p95 ?_p99 ?_max ", "?", name)
	}
	require.Equal(t, strings.Fields("system block_size rate seed error seconds iterations arrived answered refused "+
		"dropped refusal "+spread("normalized")+spread("end_to_end")+spread("first")+spread("between")+"good goodput generated "+
		"prompted hits recomputed swapped swap_blocks copy_blocks window_iterations window_requests window_sequences "+
		"window_waiting window_milliseconds window_tokens window_reservation window_internal window_external "+
		"window_saving requests_per_second tokens_per_second max_concurrency"), rows[0])
	cells := map[string]string{}
	for i, name := range rows[0] {
		if rows[1][i] != "0" && rows[1][i] != "" {
			cells[name] = rows[1][i]
		}
	}
	require.Equal(t, map[string]string{
		"system": "sosp", "block_size": "16", "rate": "0.75", "seed": "3", "seconds": "8", "iterations": "5", "answered": "4",
		"generated": "40", "swap_blocks": "7", "normalized_p99": "0.25", "end_to_end_max": "3", "first_mean": "0.1",
		"between_p50": "0.03", "window_saving": "0.5", "requests_per_second": "0.5", "tokens_per_second": "5",
	}, cells)
}

func TestTheSummaryNamesTheCapacityOfEachSystem(t *testing.T) {
	g := Grid{Systems: []string{"orca-max", "sosp", "vllm-v1"}, BlockSizes: []int{16}, Rates: []float64{1, 2, 3},
		Seeds: []uint64{1, 2}}
	st := &State{Sweep: &Sweep{Grid: g, Jobs: g.jobs()}}
	result := func(mean float64) *sim.Result {
		return &sim.Result{Arrived: 10, Answered: 10, Normalized: sim.Spread{Mean: mean}}
	}
	for _, mean := range []float64{0.6, 0.6, 0.3, 0.3, 0.9, 0.9 /**/, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9 /**/, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1} {
		st.Outcomes = append(st.Outcomes, &Outcome{measured: measured{Result: result(mean)}})
	}
	st.Outcomes[10].Result.Refused, st.Outcomes[10].Result.Answered = 2, 8
	for i, o := range st.Outcomes {
		o.Job = st.Jobs[i]
	}
	var b strings.Builder
	require.NoError(t, st.WriteSummary(&b, 0.5))
	require.Equal(t, `system    block  1/s   2/s  3/s    up to 0.5 s/token
orca-max  16     0.6   0.3  0.9    below 1/s
sosp      16     0.15  0.5  0.85*  2/s
vllm-v1   16     0.1   0.1  0.1    3/s or more
Mean normalized latency in s/token, seeds 1-2; *: of what was answered, which is not all that arrived.
`, b.String())
	st.Outcomes[12].Result = nil
	st.Outcomes[14].Result = &sim.Result{Arrived: 3}
	st.Outcomes[15].Result = &sim.Result{Arrived: 3}
	b.Reset()
	require.NoError(t, st.WriteSummary(&b, 0.5))
	require.Contains(t, b.String(), "vllm-v1   16     failed  -*   0.1    below 1/s\n")
}
