package capacity

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/sim/workload"
)

// find opens a scenario and finds its capacity under two seeds.
func find(ctx context.Context, s scenario.Scenario, slo SLO, o Options) (Capacity, error) {
	if s.Trace == "" {
		s.Requests = cmp.Or(s.Requests, defaultRequests)
	}
	p, err := scenario.Open(s)
	if err != nil {
		return Capacity{}, err
	}
	load, err := NewLoad(p, 2)
	if err != nil {
		return Capacity{}, err
	}
	return load.Find(ctx, p, slo, o)
}

// Ensure that what is written is read as meant, and comes back the same.
func TestParseSLO(t *testing.T) {
	for text, want := range map[string]SLO{
		"0.5s/token":                   {{Normalized, 0, 0.5}},
		"50ms/token@p90":               {{Normalized, 0.9, 0.05}},
		"ttft<2s@p99":                  {{TTFT, 0.99, 2}},
		"tpot<100ms@p99.9":             {{TPOT, 0.999, 0.1}},
		" e2e < 1m30s @ max , ttft<1s": {{E2E, 1, 90}, {TTFT, 0, 1}},
		"e2e<30s@p50":                  {{E2E, 0.5, 30}},
		"ttft < 1 s":                   {{TTFT, 0, 1}},
		"ttft<1s@mean":                 {{TTFT, 0, 1}},
	} {
		got, err := ParseSLO(text)
		require.NoError(t, err, text)
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, want[i].Metric, got[i].Metric, text)
			require.InDelta(t, want[i].Level, got[i].Level, 1e-12, text)
			require.InDelta(t, want[i].Limit, got[i].Limit, 1e-12, text)
		}
		again, err := ParseSLO(got.String())
		require.NoError(t, err, got.String())
		require.Equal(t, got, again)
	}
	for _, text := range []string{"", "0.5s", "0.5", "0.5/token", "ttft", "ttft<2", "ttft<0s", "-1s/token", "itl<2s",
		"normalized<1s",
		"ttft<2s@", "ttft<2s@99", "ttft<2s@p0", "ttft<2s@p101", "ttft<2s@p99.999", "ttft<2s@pNaN", "ttft<2s,", "ttft>2s"} {
		_, err := ParseSLO(text)
		require.ErrorIs(t, err, ErrSLO, text)
		require.ErrorContains(t, err, "0.5s/token", text)
	}
}

// line returns a cost file in which every iteration takes 10 ms; of the GPU it has only what the
// tests need.
func line(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "line.json")
	text := `{"model": "opt-13b", "gpu": "a100-40gb", "workers": 1, "linear_ms": {"base": 10}}`
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// trace returns a file of n requests that come every second.
func trace(t *testing.T, n int, row string) string {
	path := filepath.Join(t.TempDir(), "trace.csv")
	f, err := os.Create(path)
	require.NoError(t, err)
	_, err = f.WriteString("arrival,prompt,output\n")
	require.NoError(t, err)
	for i := range n {
		_, err = f.WriteString(number(float64(i)) + row)
		require.NoError(t, err)
	}
	require.NoError(t, f.Close())
	return path
}

func slo(t require.TestingT, text string) SLO {
	s, err := ParseSLO(text)
	require.NoError(t, err)
	return s
}

// Ensure the capacity where it follows from arithmetic. Answers of 100 tokens
// take 100 iterations of 10 ms. One at a time, requests that come evenly are
// answered after a second if at most one comes a second; n at a time, if at most
// n do.
func TestTheCapacityOfASimpleServerIsFound(t *testing.T) {
	file := trace(t, 400, ",16,100\n")
	for seqs, want := range map[int]float64{1: 1, 4: 4} {
		s := scenario.Scenario{Trace: file, Requests: 400, Setup: line(t), Server: sim.Server{MaxNumSeqs: seqs}}
		c, err := find(context.Background(), s, slo(t, "e2e<1.2s@p50"), Options{Precision: 0.005})
		require.NoError(t, err)
		// The 200th request is the median, and has waited 200 times what is missing
		// of each gap: 0.2 s and an iteration at most, so the rate may be a thousandth too high.
		require.InEpsilon(t, want, c.Rate, 0.01)
		require.Len(t, c.Seeds, 1, "a trace has one")
		require.LessOrEqual(t, c.Seeds[0].Rate, c.Seeds[0].Fails)
		require.LessOrEqual(t, c.Seeds[0].Fails, 1.005*c.Seeds[0].Rate)
	}
	// Memory for two: 116 tokens are 8 blocks.
	s := scenario.Scenario{Trace: file, Setup: line(t), Server: sim.Server{System: "orca-oracle", NumGPUBlocks: 16,
		MaxModelLen: 128}}
	c, err := find(context.Background(), s, slo(t, "e2e<1.2s@p50"), Options{Precision: 0.005})
	require.NoError(t, err)
	require.InEpsilon(t, 2, c.Rate, 0.01)
}

// Ensure M/D/1: Poisson arrivals, one at a time, 0.1 s for each. They wait for
// rho/(2(1-rho)) times that, so 0.15 s on the whole are kept at rho = 1/2.
func TestTheCapacityOfMD1IsFound(t *testing.T) {
	lengths := fixed{16, 10}
	p, err := scenario.Open(scenario.Scenario{Setup: line(t), Server: sim.Server{System: "sosp", MaxNumSeqs: 1}})
	require.NoError(t, err)
	l := &Load{}
	for seed := range uint64(3) {
		source, err := workload.Poisson(lengths, 1, seed, 0, 5000)
		require.NoError(t, err)
		d := &requestSet{steady: true, source: source}
		require.NoError(t, d.draw(-1))
		l.Seeds, l.sets = append(l.Seeds, seed), append(l.sets, d)
	}
	require.NoError(t, l.check(p))
	c, err := l.Find(context.Background(), p, slo(t, "e2e<150ms"), Options{})
	require.NoError(t, err)
	require.InDelta(t, 5, c.Rate, 0.2)
	require.True(t, c.Low <= c.Rate && c.Rate <= c.High)

	// However lax the objective, more than ten a second do not go on.
	c, err = l.Find(context.Background(), p, slo(t, "e2e<100h"), Options{})
	require.NoError(t, err)
	require.InDelta(t, 10, c.Rate, 0.6)
}

// Ensure that a stricter objective and less of anything sustain no more.
func TestAStricterObjectiveSustainsNoMore(t *testing.T) {
	find := func(text string, server sim.Server) float64 {
		server.System = "sosp"
		c, err := find(context.Background(), scenario.Scenario{Requests: 300, Server: server}, slo(t, text),
			Options{})
		require.NoError(t, err)
		return c.Rate
	}
	const p = 1.0201 // twice the precision
	all := find("0.1s/token", sim.Server{})
	for name, less := range map[string]float64{
		"stricter": find("0.05s/token", sim.Server{}),
		"one more": find("0.1s/token, ttft<300ms@p99", sim.Server{}),
		"memory":   find("0.1s/token", sim.Server{NumGPUBlocks: 400}),
		"seqs":     find("0.1s/token", sim.Server{MaxNumSeqs: 8}),
	} {
		require.Less(t, less, p*all, name)
		require.Positive(t, less, name)
	}
}

// Ensure that runs at once, and where the search begins, do not change what is
// found but for the precision; and that equal searches are equal.
func TestTheSearchDoesNotDependOnItsStartOrJobs(t *testing.T) {
	p, err := scenario.Open(scenario.Scenario{Requests: 300, Seed: 5, Server: sim.Server{System: "sosp"}})
	require.NoError(t, err)
	l, err := NewLoad(p, 3)
	require.NoError(t, err)
	require.Equal(t, []uint64{5, 6, 7}, l.Seeds)
	find := func(o Options) Capacity {
		c, err := l.Find(context.Background(), p, slo(t, "0.1s/token"), o)
		require.NoError(t, err)
		return c
	}
	one := find(Options{Pool: NewPool(1), Curve: DefaultCurve})
	require.Equal(t, one, find(Options{Pool: NewPool(7), Curve: DefaultCurve}))
	require.Len(t, one.Curve, len(DefaultCurve))
	for _, step := range one.Curve {
		for _, point := range step.Points {
			require.False(t, point.Cut, "the curve is of whole runs")
			require.NotNil(t, point.Result)
		}
	}
	near := find(Options{Near: []float64{2.5 * one.Rate, one.Rate / 3, one.Rate}})
	require.InEpsilon(t, one.Rate, near.Rate, 0.05)
	require.NotEqual(t, one.Seeds[0].At().Values, one.Seeds[1].At().Values, "other seeds are other requests")
}

func TestARunThatIsCutWouldNotHaveHeld(t *testing.T) {
	p, err := scenario.Open(scenario.Scenario{Requests: 500, Server: sim.Server{System: "sosp"}})
	require.NoError(t, err)
	l, err := NewLoad(p, 1)
	require.NoError(t, err)
	cut := 0
	for _, text := range []string{"0.1s/token", "0.1s/token@p90", "ttft<1s@p99", "ttft<2s", "tpot<60ms", "tpot<60ms@p90",
		"e2e<30s", "e2e<30s@p50", "e2e<60s@max"} {
		for _, rate := range []float64{0.5, 1, 1.7, 2, 2.3, 4, 20} {
			short, err := measure(context.Background(), p, l.sets[0], 0, rate, slo(t, text), false)
			require.NoError(t, err)
			whole, err := measure(context.Background(), p, l.sets[0], 0, rate, slo(t, text), true)
			require.NoError(t, err)
			require.Equal(t, whole.Holds, short.Holds, "%s at %v: %v", text, rate, whole.Values)
			if short.Cut {
				cut++
				require.Nil(t, short.Result)
				continue
			}
			require.Equal(t, whole, short)
			require.Equal(t, 500, whole.Result.Answered)
		}
	}
	require.Greater(t, cut, 15)
}

// Ensure that the objective's values are the simulator's own.
func TestTheObjectivesValuesAreTheSimulators(t *testing.T) {
	p, err := scenario.Open(scenario.Scenario{Requests: 500})
	require.NoError(t, err)
	l, err := NewLoad(p, 1)
	require.NoError(t, err)
	point, err := measure(context.Background(), p, l.sets[0], 0, 2,
		slo(t, "1s/token,ttft<1s,tpot<1s,e2e<1s,ttft<1s@p90,tpot<1s@p50,e2e<1s@max"), true)
	require.NoError(t, err)
	r := point.Result
	for i, want := range []float64{r.Normalized.Mean, r.TTFT.Mean, r.TPOT.Mean, r.EndToEnd.Mean, r.TTFT.P90, r.TPOT.P50,
		r.EndToEnd.Max} {
		require.InEpsilon(t, want, float64(point.Values[i]), 0.012, "%d", i) // its quantiles are within 1 %
	}
	require.InEpsilon(t, r.TTFT.Mean, float64(point.Values[1]), 1e-9)
}

func TestPercentilesAreTakenByRank(t *testing.T) {
	for _, c := range []struct {
		level float64
		n     int
		want  int
	}{{0.5, 1, 1}, {0.5, 2, 1}, {0.5, 3, 2}, {0.99, 100, 99}, {0.99, 101, 100}, {1, 7, 7}, {0.9, 10, 9}, {0.001, 10, 1}} {
		require.Equal(t, c.want, rank(c.level, c.n), "%+v", c)
	}
	level, err := parseLevel("p99.9") // a little above 0.999
	require.NoError(t, err)
	require.Equal(t, 999, rank(level, 1000))
}

// Ensure that one refused request of a hundred does not count, and that two are as many that wait forever.
func TestOnePercentMayBeRefused(t *testing.T) {
	requests := make([]workload.Request, 100)
	for refused, want := range map[int]float64{0: 2, 1: 2, 2: math.Inf(1)} {
		var left []sim.Departure
		for i := range requests {
			requests[i].Output = 1
			left = append(left, sim.Departure{Index: i, Answered: i >= refused, First: 2, Done: 2, Output: 1})
		}
		seen := newTally(requests, 1, nil)
		for _, d := range left {
			seen.left(d)
		}
		require.Equal(t, want, seen.value(slo(t, "ttft<1s")[0]), "%d refused", refused)
	}
}

// Ensure the same of runs with a horizon.
func TestOnePercentMayBeRefusedUntilTheHorizon(t *testing.T) {
	const n = 100
	w := &steadyRun{rate: 1, requests: make([]workload.Request, n), first: make([]float64, n), done: make([]float64, n),
		refused: make([]bool, n)}
	for i := range n {
		w.first[i], w.done[i] = 2, 2
	}
	for refused, want := range []float64{2, 2, math.Inf(1)} {
		for i := range refused {
			w.refused[i] = true
		}
		require.Equal(t, want, w.value(Objective{Metric: TTFT}, 0, n).Mean, "%d refused", refused)
	}
}

// Ensure that the lowest rate that failed counts, whatever held above it, and
// that this is said.
func TestTheLowestFailureCounts(t *testing.T) {
	p, err := scenario.Open(scenario.Scenario{Requests: 300})
	require.NoError(t, err)
	l, err := NewLoad(p, 1)
	require.NoError(t, err)
	s := &search{plan: p, set: l.sets[0], slo: slo(t, "0.1s/token"), precision: 0.02, estimate: l.estimate(p)}
	s.points = []Point{{Rate: 0.5, Holds: true}, {Rate: 0.6}, {Rate: 0.61, Holds: true}, {Rate: 3}}
	require.False(t, s.monotone())
	require.NoError(t, s.settle(context.Background(), 1, 2))
	low, high := s.bracket()
	require.InEpsilon(t, 0.6, high, 1e-9, "what is between 0.5 and 0.6 does hold")
	require.True(t, low < high && high <= 1.02*low)
	require.Zero(t, Median([]float64{3, 0, 0}))
	require.Equal(t, 2.0, Median([]float64{3, 1, 2}))
	require.Equal(t, 2.0, Median([]float64{4, 3, 1, 2}), "the lower one")
}

// Ensure that a rate which seemed to hold when its run was cut is run to the horizon before it is
// answered, and that the search goes on below if it fails there.
func TestARateThatFailsAfterItsRunWasCutIsNotAnswered(t *testing.T) {
	p, err := scenario.Open(scenario.Scenario{Requests: 300})
	require.NoError(t, err)
	l, err := NewSteadyLoad(p, 1, 0)
	require.NoError(t, err)
	most := 3 * l.estimate(p)
	s := &search{plan: p, set: l.sets[0], slo: slo(t, "0.1s/token"), precision: 0.05, estimate: l.estimate(p),
		horizon: &CompareHorizon}
	s.points = []Point{{Rate: most, Holds: true, Cut: true}, {Rate: 1.01 * most}}
	require.NoError(t, s.settle(context.Background(), 1, 2))
	low, high := s.bracket()
	require.True(t, 0 < low && low < high && high < most, "%v to %v, and %v does not hold", low, high, most)
	require.False(t, s.cut(low))
}

// Ensure that what has no capacity, or no bound, ends and is said.
func TestWithoutACapacityTheSearchEnds(t *testing.T) {
	ctx := context.Background()
	c, err := find(ctx, scenario.Scenario{Requests: 50}, slo(t, "tpot<20ms"), Options{})
	require.NoError(t, err)
	require.Zero(t, c.Rate, "an iteration takes 22 ms")
	require.Less(t, c.Seeds[0].Fails, 1e-4)

	_, err = find(ctx, scenario.Scenario{Trace: trace(t, 10, ",16,100\n"), Setup: line(t)}, slo(t, "e2e<1h"), Options{})
	require.ErrorIs(t, err, ErrUnbounded)
	require.ErrorContains(t, err, "take more requests or a stricter objective")

	// 116 tokens do not fit in 4 blocks of 16: requests are refused, or wait forever.
	for _, system := range []string{"vllm-v1", "sosp"} {
		c, err = find(ctx, scenario.Scenario{Trace: trace(t, 30, ",16,100\n"),
			Server: sim.Server{System: system, NumGPUBlocks: 4}}, slo(t, "0.5s/token"), Options{})
		if err == nil {
			require.Zero(t, c.Rate)
		}
	}

	_, err = find(ctx, scenario.Scenario{Trace: trace(t, 1, ",16,100\n")}, slo(t, "e2e<1h"), Options{})
	require.ErrorIs(t, err, ErrLoad)
	_, err = find(ctx, scenario.Scenario{Trace: trace(t, 9, ",16,4000\n")}, slo(t, "e2e<1h"), Options{})
	require.ErrorIs(t, err, ErrLoad)
	require.ErrorContains(t, err, "2048 tokens of a sequence")

	done, cancel := context.WithCancel(ctx)
	cancel()
	_, err = find(done, scenario.Scenario{}, slo(t, "0.5s/token"), Options{Pool: NewPool(1)})
	require.ErrorIs(t, err, context.Canceled)
}

// Ensure that a trace keeps its shape, and that its rate is that of what is taken.
func TestATraceKeepsItsShape(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bursts.csv")
	require.NoError(t, os.WriteFile(path,
		[]byte("arrival,prompt,output\n5,16,4\n5,17,4\n5,3000,4\n7,18,4\n9,19,4\n500,20,4\n"), 0o600))
	p, err := scenario.Open(scenario.Scenario{Trace: path, Duration: 100})
	require.NoError(t, err)
	l, err := NewLoad(p, 3)
	require.NoError(t, err)
	require.Equal(t, 1, l.TooLong)
	require.Equal(t, 4, l.Requests(), "those of the first 100 s that fit")
	require.Equal(t, 23, l.Longest)
	require.InDelta(t, 0.75, l.Own, 1e-12, "3 gaps in 4 s")
	requests, err := l.sets[0].at(3)
	require.NoError(t, err)
	source := &scaled{requests: requests, rate: 3}
	var r workload.Request
	for _, want := range []float64{0, 0, 0.5, 1} { // four times as fast
		require.NoError(t, source.Next(&r))
		require.InDelta(t, want, r.Arrival, 1e-12)
	}
}

// Ensure that a duration brings more requests at a higher rate, the same first.
func TestADurationBringsMoreRequestsAtAHigherRate(t *testing.T) {
	p, err := scenario.Open(scenario.Scenario{Duration: 500, Seed: 3})
	require.NoError(t, err)
	l, err := NewLoad(p, 1)
	require.NoError(t, err)
	require.Zero(t, l.Requests())
	few, err := l.sets[0].at(1)
	require.NoError(t, err)
	many, err := l.sets[0].at(20)
	require.NoError(t, err)
	require.InEpsilon(t, 500, len(few), 0.15)
	require.InEpsilon(t, 10000, len(many), 0.05)
	require.Equal(t, few, many[:len(few)])
	require.Less(t, many[len(many)-1].Arrival/20, 500.0)
}

// Ensure that a plan's rate does not count the requests that are left out.
func TestRequestsThatAreLeftOutAreNotInTheRate(t *testing.T) {
	p, err := scenario.Open(scenario.Scenario{Server: sim.Server{MaxModelLen: 400}})
	require.NoError(t, err)
	l, err := NewSteadyLoad(p, 2, 0)
	require.NoError(t, err)
	require.InDelta(t, 0.47, l.LeftOut, 0.05)
	for _, d := range l.sets {
		require.InEpsilon(t, defaultRequests, d.requests[defaultRequests-1].Arrival, 0.1, "one a second")
	}
	p, err = scenario.Open(scenario.Scenario{})
	require.NoError(t, err)
	l, err = NewSteadyLoad(p, 1, 0)
	require.NoError(t, err)
	require.Zero(t, l.LeftOut)
}

func TestEndlessSecondsAreWrittenAsMinusOne(t *testing.T) {
	text, err := Seconds(math.Inf(1)).MarshalJSON()
	require.NoError(t, err)
	require.Equal(t, "-1", string(text))
}

// Ensure that a mean is lost when it is over all requests, those to come
// included, and waiting ones count as long as they have waited.
func TestAMeanIsLostWhenItCannotHoldAnyMore(t *testing.T) {
	requests := make([]workload.Request, 10)
	for i := range requests {
		requests[i] = workload.Request{Arrival: float64(i), Prompt: 1, Output: 10}
	}
	y := newTally(requests, 1, slo(t, "e2e<1s"))
	y.left(sim.Departure{Index: 0, First: 1, Done: 9, Output: 10, Answered: true})
	require.False(t, y.lost(9, 1), "9 s of 10")
	require.False(t, y.lost(1.9, 2), "9.9 s")
	require.True(t, y.lost(2.1, 2), "10.1 s")
	y.left(sim.Departure{Index: 1, Done: 2.1})
	require.False(t, y.lost(100, 2), "a refused one does not wait")
	require.True(t, math.IsInf(y.value(y.slo[0]), 1), "and has no answer")
}

// Ensure that requests keep their own hashes, which the source writes over.
func TestRequestsKeepTheirOwnHashes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hashes.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
{"timestamp": 1000, "input_length": 700, "output_length": 5, "hash_ids": [1, 3]}
`), 0o600))
	p, err := scenario.Open(scenario.Scenario{Trace: path})
	require.NoError(t, err)
	l, err := NewLoad(p, 1)
	require.NoError(t, err)
	requests, err := l.sets[0].at(1)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, requests[0].Hashes)
	require.Equal(t, []int64{1, 3}, requests[1].Hashes)
}

// Ensure that a search begins at the same rate whatever other searches have drawn by then.
func TestMeansStayWhenMoreIsDrawn(t *testing.T) {
	p, err := scenario.Open(scenario.Scenario{Seed: 3})
	require.NoError(t, err)
	l, err := NewSteadyLoad(p, 1, 0)
	require.NoError(t, err)
	prompt, output := l.Means()
	require.InEpsilon(t, 161, prompt, 0.2)
	before := l.estimate(p)
	_, err = l.sets[0].first(3 * defaultRequests)
	require.NoError(t, err)
	again, further := l.Means()
	require.Equal(t, []float64{prompt, output}, []float64{again, further})
	require.Equal(t, before, l.estimate(p))
}

// fixed are requests that are all the same.
type fixed struct{ prompt, output int }

func (f fixed) Draw(*rand.Rand) (prompt, output int) { return f.prompt, f.output }
