package plans

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/capacity"
	"llmmemory/internal/simulation/chart"
	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/simulation/workload"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

var update = flag.Bool("update", false, "write the golden files")

func question(t *testing.T, slo string, s scenario.Scenario) Question {
	t.Helper()
	parsed, err := capacity.ParseSLO(slo)
	require.NoError(t, err)
	if s.Requests == 0 {
		s.Requests = 100
	}
	s.Seed = 1
	return Question{Scenario: s, SLO: parsed, Seeds: 1, Lasts: capacity.Horizon{Seconds: 600, Answers: 20}}
}

func size(t *testing.T, q Question) *Report {
	t.Helper()
	r, err := Size(context.Background(), q)
	require.NoError(t, err)
	return r
}

func words(t *testing.T, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, r.Write(&b, true))
	return b.String()
}

func TestTheNarrowestLimitIsNamed(t *testing.T) {
	level.SkipQuick(t)
	for name, c := range map[string]struct {
		slo    string
		s      scenario.Scenario
		limit  string
		phrase string
	}{
		"memory": {"0.1s/token", scenario.Scenario{Server: sim.Server{NumGPUBlocks: 200}}, "twice the KV memory",
			"limited by KV memory: twice the KV memory gives +"},
		"sequences": {"0.1s/token", scenario.Scenario{Machine: scenario.Machine{Setup: "roofline-opt-13b"},
			Server: sim.Server{MaxNumSeqs: 4}},
			"twice --max-seqs", "limited by sequences at once"},
		"token budget": {"1s/token", scenario.Scenario{Machine: scenario.Machine{Setup: "roofline-opt-13b"},
			Load: scenario.Load{Workload: "alpaca"}, Server: sim.Server{MaxNumBatchedTokens: 6}},
			"twice --max-tokens", "limited by tokens of an iteration"},
		"slow GPU": {"tpot<80ms", scenario.Scenario{Machine: scenario.Machine{Model: "llama-3-8b", GPU: "l4"},
			Server: sim.Server{NumGPUBlocks: 20000}}, "twice the GPU's memory bandwidth",
			"limited by iteration time, not memory"},
	} {
		if name == "memory" && !level.Exhaustive() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := question(t, c.slo, c.s)
			found := limitOf(t, q)
			require.Equal(t, c.limit, found.Limit, "%+v", found.Limits)
			require.Contains(t, found.text("verdict"), c.phrase)
			// With everything twice as fast, the capacity at least doubles.
			require.GreaterOrEqual(t, found.change(Whole).Gain, 0.95)
		})
	}
}

func TestMoreMemoryHelpsSystemsThatReserveIt(t *testing.T) {
	r := limitOf(t, question(t, "0.1s/token", scenario.Scenario{Load: scenario.Load{Requests: 400},
		Server: sim.Server{System: "orca-max"}}))
	require.Greater(t, r.change(KVMemory).GainLow, 0.2, "%+v", r.Limits)
}

func based(t *testing.T, q Question) *sizer {
	s := &sizer{Question: q, pool: capacity.NewPool(1)}
	var err error
	s.plan, err = scenario.Open(q.Scenario)
	require.NoError(t, err)
	s.load, err = capacity.NewLoad(s.plan, q.Seeds)
	require.NoError(t, err)
	s.confirmed, err = s.load.Find(context.Background(), s.plan, q.SLO, s.options(capacity.CompareHorizon, nil))
	require.NoError(t, err)
	s.byShortRuns, s.found = s.confirmed, s.confirmed
	return s
}

func limitOf(t *testing.T, q Question) *Report {
	t.Helper()
	q.Precision = 0.1
	s := based(t, q)
	all, err := s.changes(context.Background(), s.limits())
	require.NoError(t, err)
	for i := range all {
		s.scale(&all[i])
	}
	r := &Report{Capacity: s.confirmed, Limits: ranked(all), SLO: q.SLO.String(), slo: q.SLO, Load: s.facts()}
	if i := limiting(r.Limits, s.Precision); i >= 0 {
		r.Limit = r.Limits[i].Name
	}
	return r
}

// Ensure that a report says that no rate meets the objective, and why, if even a single request alone misses it.
func TestAnObjectiveThatOneRequestMissesIsSaid(t *testing.T) {
	q := question(t, "tpot<20ms", scenario.Scenario{})
	r := size(t, q)
	require.Zero(t, r.Capacity.Rate)
	require.Contains(t, r.Verdict,
		"no rate holds tpot<20ms; even requests that are alone miss it: alone they have tpot mean 22.")
	require.NotContains(t, r.Verdict, "no number of such servers")
	q.Target = 3
	require.Contains(t, size(t, q).Verdict, "; no number of such servers holds it at 3.00 requests/s")
	require.NotContains(t, words(t, r), "\ntake ")
	require.NoError(t, r.Save(t.TempDir()))
}

func TestOnlyAGainAbovePrecisionReplacesTheDefault(t *testing.T) {
	s := &sizer{Question: Question{Precision: 0.02}}
	at := func(size int, rates ...float64) Change {
		return Change{Name: "x", size: size, rates: rates, Rate: capacity.Median(rates)}
	}
	usual := func(c Change) bool { return c.size == defaultBlock }
	for _, c := range []struct {
		all  []Change
		want int
	}{
		{[]Change{at(8, 10, 10, 10), at(16, 10, 10, 10), at(32, 10, 10, 10)}, 16},
		{[]Change{at(8, 10.1, 10.1, 10.1), at(16, 10, 10, 10)}, 16}, // within the precision
		{[]Change{at(8, 14, 9.9, 9.9), at(16, 10, 10, 10)}, 16},     // not under every seed
		{[]Change{at(8, 10.5, 10.3, 10.3), at(16, 10, 10, 10)}, 8},
		{[]Change{at(8, 10.5, 10.5, 10.5), at(16, 10, 10, 10), at(32, 11, 11, 11)}, 32},
		{[]Change{at(16, 10), at(32, 10.4)}, 16}, // by chance, with one seed
		{[]Change{at(16, 10), at(32, 10.8)}, 32},
		{[]Change{at(8, 9, 9, 9), {size: 16, Trouble: "no"}, at(32, 8, 8, 8)}, 8},
	} {
		best, reason := s.choose(c.all, usual)
		require.Equal(t, c.want, best.size, "%+v", c.all)
		require.NotEmpty(t, reason)
	}
}

// Ensure that large blocks give a lower capacity because they waste memory. The report must then recommend the
// default size.
func TestLargeBlocksWasteMemory(t *testing.T) {
	level.SkipNormal(t)
	q := question(t, "0.1s/token", scenario.Scenario{Load: scenario.Load{Workload: "alpaca", Requests: 400},
		Server: sim.Server{System: "sosp", NumGPUBlocks: 20, BlockSize: 256}})
	q.Precision, q.Lasts = 0.2, capacity.Horizon{Seconds: 120, Answers: 8}
	r := size(t, q)
	require.Len(t, r.BlockSizes, 6)
	for i, c := range r.BlockSizes {
		require.Equal(t, []int{8, 16, 32, 64, 128, 256}[i], c.size)
		require.Equal(t, c.size == 256, c.Base)
	}
	require.Greater(t, r.BlockSizes[1].Gain, 0.5, "prompts of 19 and answers of 58 tokens in blocks of 256")
	require.LessOrEqual(t, r.Take.BlockSize, 16)
	require.Equal(t, "vllm-v1", r.Take.System)
	require.Greater(t, r.Take.Both.Gain, 0.5)
	require.Zero(t, r.BlockSizes[5].Gain)
	text := words(t, r)
	require.Contains(t, text, "as asked")
	require.Contains(t, text, "not modelled")
}

// Ensure that Target.Blocks are enough for the target rate. With 3 % fewer they must not be enough.
func TestATargetSaysHowManyBlocksAndGPUs(t *testing.T) {
	level.SkipQuick(t)
	target := func(rate float64, s scenario.Scenario) (*sizer, *Target) {
		q := question(t, "0.1s/token", s)
		q.Target, q.Precision, q.Lasts = rate, 0.2, capacity.Horizon{Seconds: 150, Answers: 16}
		z := based(t, q)
		found, err := z.target(context.Background())
		require.NoError(t, err)
		return z, found
	}
	holds := func(z *sizer, blocks int) bool {
		ok, err := z.holds(context.Background(), blocks)
		require.NoError(t, err)
		return ok
	}
	roofline := scenario.Scenario{Machine: scenario.Machine{Model: "opt-13b", GPU: "a100-40gb",
		Engine: scenario.DataSheet, MemoryUtilization: 0.653},
		Load: scenario.Load{Workload: "alpaca"}}

	z, fits := target(8, roofline)
	require.True(t, fits.Holds)
	require.Less(t, fits.Blocks, z.plan.Scenario.Server.NumGPUBlocks)
	require.True(t, holds(z, fits.Blocks))
	require.False(t, holds(z, fits.Blocks*97/100))
	require.Equal(t, []Server{{Workers: 1, Rate: z.confirmed.Rate, Confirmed: true, Replicas: 1, GPUs: 1}}, fits.Servers)

	z, more := target(25, roofline)
	require.False(t, more.Holds)
	require.Greater(t, more.Blocks, z.plan.Scenario.Server.NumGPUBlocks)
	require.True(t, holds(z, more.Blocks))
	require.EqualValues(t, more.Blocks*16*819200, more.Bytes)
	require.Greater(t, len(more.Servers), 1)
	for _, s := range more.Servers {
		require.GreaterOrEqual(t, float64(s.Replicas)*s.Rate, 25-1e-6)
		require.Less(t, float64(s.Replicas-1)*s.Rate, 25.0)
		require.Equal(t, s.Workers*s.Replicas, s.GPUs)
	}
	require.Less(t, more.Servers[1].GPUs, more.Servers[0].GPUs)
	require.True(t, more.Servers[1].Confirmed)

	_, never := target(1e6, scenario.Scenario{})
	require.Zero(t, never.Blocks)
	require.Contains(t, never.Note, "--model")
}

// Ensure that the report does not advise more memory if memory is not the limit. The server's limit of 4 sequences
// leaves 98 % of the memory unused.
func TestMemoryIsAdvisedOnlyWhereItIsMissing(t *testing.T) {
	q := question(t, "0.1s/token", scenario.Scenario{Machine: scenario.Machine{Setup: "roofline-opt-13b"},
		Load: scenario.Load{Workload: "alpaca"}, Server: sim.Server{MaxNumSeqs: 4}})
	q.Precision = 0.05
	z := based(t, q)
	z.confirmed.Rate = 0.9 * z.byShortRuns.Rate // as confirmed
	for _, c := range []struct {
		name              string
		multiple          float64 // the target divided by the answer
		holds, near       bool
		blocks, maxBlocks int
		says              string
	}{
		{"above the answer", 1.1, false, false, 0, 0,
			"one server is not enough, even with 64 times its memory"},
		{"just above the answer", 1.0001, false, true, 0, 0, "one server is nearly enough"},
		{"below the answer", 0.9, true, false, 1, 200, "one server is enough; by shorter runs "},
	} {
		t.Run(c.name, func(t *testing.T) {
			z.Question.Target = c.multiple * z.confirmed.Rate
			found := &Target{Rate: z.Question.Target, Holds: c.holds,
				MaxBlocks: maxMemory * z.plan.Scenario.Server.NumGPUBlocks}
			var err error
			found.Blocks, err = z.blocks(context.Background(), found)
			require.NoError(t, err)
			require.GreaterOrEqual(t, found.Blocks, c.blocks)
			require.LessOrEqual(t, found.Blocks, c.maxBlocks)
			require.Equal(t, c.near, found.Near)
			require.Contains(t, (&Report{Target: found, Memory: z.memory()}).text("memory for the target"), c.says)
		})
	}
}

// Ensure that a change without effect has the rate of the unchanged server after the method scale has converted its
// rates. In the chart, the bars of the change and of the unchanged server must have the same height.
func TestAChangeThatGainsNothingIsDrawnAsTheServer(t *testing.T) {
	found := capacity.Capacity{Rate: 2.2, Low: 2.1, High: 2.3, Seeds: []capacity.Seed{{Seed: 1, Rate: 2.1},
		{Seed: 2, Rate: 2.3}}}
	s := &sizer{byShortRuns: found, confirmed: found}
	s.confirmed.Rate = 2
	unchanged := Change{Name: "the same", Kind: KVMemory, rates: s.byShortRuns.Rates()}
	s.scale(&unchanged)
	r := &Report{Capacity: s.confirmed, Setup: "x", Load: Load{Seeds: []uint64{1, 2}}, Limits: []Change{unchanged},
		asIs: s.scaled(s.byShortRuns.Rates())}
	bars := r.bars("n", "t", "x", r.Limits, "as it is").Panels[0].Data.(chart.Bars)
	require.Equal(t, []string{"as it is", "the same"}, bars.Groups)
	require.Equal(t, bars.Series[0].Values[0], bars.Series[0].Values[1])
	require.InDelta(t, 2, bars.Series[0].Values[0].Mean, 1e-9)
	require.InDelta(t, 2, unchanged.Rate, 1e-9)
	require.Contains(t, r.text("verdict"), "2.00 requests/s under (seeds 1-2, whose shorter runs hold 2.10 to 2.30); ")
}

// Ensure that the text of a report equals the golden file. Save must write all figures and a readable plan.json. In
// make exhaustive, ensure that the number of concurrent runs does not change the report.
func TestTheReportIsTheSameHoweverManyRunsGoOn(t *testing.T) {
	level.SkipNormal(t)
	// The batch is small, so that runs are short.
	q := question(t, "0.1s/token, ttft<2s@p90", scenario.Scenario{Load: scenario.Load{Workload: "alpaca"},
		Server: sim.Server{NumGPUBlocks: 45}})
	q.Target, q.Precision, q.Lasts = 6, 0.05, capacity.Horizon{Seconds: 150, Answers: 20}
	last, totals := 0, 0
	q.Progress = func(done, total int) {
		require.Equal(t, last+1, done)
		require.LessOrEqual(t, done, total)
		last, totals = done, total
	}
	q.Runs = 5
	one := size(t, q)
	require.LessOrEqual(t, totals, last)
	if level.Exhaustive() {
		q.Runs, q.Progress = 1, nil
		require.Equal(t, one, size(t, q))
	}

	golden := filepath.Join("testdata", "plan.txt")
	got := words(t, one)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)

	dir := filepath.Join(t.TempDir(), "plan")
	require.NoError(t, one.Save(dir))
	for _, name := range []string{"plan-latency", "plan-limits", "plan-block-sizes", "plan-systems"} {
		for _, kind := range []string{".svg", ".png", ".csv"} {
			require.FileExists(t, filepath.Join(dir, name+kind))
		}
	}
	require.FileExists(t, filepath.Join(dir, "index.html"))
	text, err := os.ReadFile(filepath.Join(dir, "plan.json"))
	require.NoError(t, err)
	var again Report
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, one.Verdict, again.Verdict)
	require.Equal(t, one.Capacity.Rates(), again.Capacity.Rates())
	left, err := filepath.Glob(filepath.Join(dir, ".*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestImpossibleQuestionsAreRefused(t *testing.T) {
	ctx := context.Background()
	_, err := Size(ctx, Question{})
	require.ErrorIs(t, err, capacity.ErrSLO)
	q := question(t, "0.1s/token", scenario.Scenario{})
	q.Target = -1
	_, err = Size(ctx, q)
	require.ErrorIs(t, err, scenario.ErrScenario)
	for says, change := range map[string]func(*Question){
		"-5 seeds":           func(q *Question) { q.Seeds = -5 },
		"a precision of NaN": func(q *Question) { q.Precision = math.NaN() },
		"a precision of -1":  func(q *Question) { q.Precision = -1 },
		"a precision of 2":   func(q *Question) { q.Precision = 2 },
	} {
		q := question(t, "0.1s/token", scenario.Scenario{})
		change(&q)
		_, err = Size(ctx, q)
		require.ErrorIs(t, err, scenario.ErrScenario)
		require.ErrorContains(t, err, says)
	}
	_, err = Size(ctx, question(t, "0.1s/token", scenario.Scenario{Server: sim.Server{MaxModelLen: 2}}))
	require.ErrorIs(t, err, workload.ErrNoneFits)
	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err = Size(done, question(t, "0.1s/token", scenario.Scenario{}))
	require.ErrorIs(t, err, context.Canceled)
}

func TestRatesAndPercentagesAreRoundedForReaders(t *testing.T) {
	for v, want := range map[float64]string{12.345: "12.3", 2.1: "2.10", 0.2431: "0.243", 123.4: "123", 12345: "12345",
		0: "0"} {
		require.Equal(t, want, rate(v))
	}
	for v, want := range map[float64]string{0.384: "+38 %", -0.001: "+0 %", -0.12: "-12 %"} {
		require.Equal(t, want, percent(v))
	}
	require.Equal(t, []int{8, 16, 24, 32}, insert([]int{8, 16, 32}, 24))
	require.Equal(t, []int{8, 16, 32}, insert([]int{8, 16, 32}, 16))
	require.Equal(t, []int{4, 8}, insert([]int{8}, 4))
	require.Equal(t, []int{8, 256}, insert([]int{8}, 256))
	require.Equal(t, "vllm-v0 --swap --chunked", policy{system: "vllm-v0", swap: true, chunked: true}.String())
}

func TestAGrowingQueueIsNotLeftOutOfAMedian(t *testing.T) {
	point := func(seconds float64) capacity.Point {
		return capacity.Point{Result: &sim.Result{Normalized: sim.Spread{Mean: seconds}}}
	}
	of := func(p capacity.Point) float64 { return p.Result.Normalized.Mean }
	grows := capacity.Point{Cut: true}
	require.Equal(t, 3.0, median(capacity.Step{Points: []capacity.Point{point(2), grows, point(3)}}, of))
	require.True(t, math.IsInf(median(capacity.Step{Points: []capacity.Point{point(2), grows, grows}}, of), 1))
}
