package capacity

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/scenario"
	"llmmemory/internal/simulation/sim"
	"llmmemory/internal/simulation/workload"
	"llmmemory/internal/testkit/level"
)

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
		reparsed, err := ParseSLO(got.String())
		require.NoError(t, err, got.String())
		require.Equal(t, got, reparsed)
	}
	for _, text := range []string{"", "0.5s", "0.5", "0.5/token", "ttft", "ttft<2", "ttft<0s", "-1s/token", "itl<2s",
		"normalized<1s",
		"ttft<2s@", "ttft<2s@99", "ttft<2s@p0", "ttft<2s@p101", "ttft<2s@p99.999", "ttft<2s@pNaN", "ttft<2s,",
		"ttft>2s"} {
		_, err := ParseSLO(text)
		require.ErrorIs(t, err, ErrSLO, text)
		require.ErrorContains(t, err, "0.5s/token", text)
	}
}

// line returns a setup in which every iteration takes 10 ms.
func line(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "line.json")
	text := `{"model": "opt-13b", "gpu": "a100-40gb", "workers": 1, "linear_ms": {"base": 10}}`
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func trace(t *testing.T, n int, row string) string {
	text := "arrival,prompt,output\n"
	for i := range n {
		text += fmt.Sprint(i) + row
	}
	path := filepath.Join(t.TempDir(), "trace.csv")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func slo(t require.TestingT, text string) SLO {
	s, err := ParseSLO(text)
	require.NoError(t, err)
	return s
}

// Ensure that Knee finds the highest rate of an M/D/1 queue: Poisson arrivals, one request at a time, 0.1 s of
// service for each. At a load rho, the mean wait of a request is
//
//	0.1 s * rho / (2 * (1 - rho))
//
// A request has 10 tokens, so its service takes 10 ms a token. With a limit of 15 ms a token, a request may wait for
// 5 ms a token, which is 0.05 s. This is the mean wait at rho = 1/2. The highest rate is then 5 requests a second.
//
// With a limit that no request reaches, the highest rate is 10 requests a second, because a service takes 0.1 s. The
// number of concurrent runs does not change the result.
func TestTheKneeOfMD1IsFound(t *testing.T) {
	s := scenario.Scenario{Load: scenario.Load{InputLen: 16, OutputLen: 10, Duration: 600},
		Machine: scenario.Machine{Setup: line(t)}, Server: sim.Server{System: "sosp", MaxNumSeqs: 1}}
	p, l := load(t, s, 2)
	knee := func(text string, jobs int) Capacity {
		c, err := l.Knee(context.Background(), p, slo(t, text), []float64{0.5, 1.1}, NewPool(jobs))
		require.NoError(t, err)
		return c
	}
	c := knee("0.015s/token", 1)
	require.InDelta(t, 5, c.Rate, 0.25)
	require.True(t, c.Low <= c.Rate && c.Rate <= c.High)
	require.Equal(t, c, knee("0.015s/token", 7))
	require.NotEqual(t, c.Seeds[0].At().Values, c.Seeds[1].At().Values, "other seeds are other requests")
	require.Len(t, c.Curve, 2)
	require.InDelta(t, 0.01+0.1*0.25/(2*0.75)/10, c.Curve[0].Points[0].Result.Normalized.Mean, 0.0005)
	require.False(t, c.Curve[1].Points[0].Holds)
	require.InDelta(t, 10, knee("100h/token", 1).Rate, 0.6)
}

// Ensure that Knee refuses a trace: at a high rate, all its requests arrive before Duration has passed.
func TestATraceHasNoKnee(t *testing.T) {
	p, l := load(t, scenario.Scenario{Load: scenario.Load{Trace: trace(t, 9, ",16,4\n"), Duration: 100}}, 1)
	_, err := l.Knee(context.Background(), p, slo(t, "0.5s/token"), nil, nil)
	require.ErrorIs(t, err, ErrLoad)
}

func TestAStricterObjectiveSustainsNoMore(t *testing.T) {
	knee := func(text string, server sim.Server) float64 {
		server.System = "sosp"
		p, l := load(t, scenario.Scenario{Load: scenario.Load{Duration: 150}, Server: server}, 2)
		c, err := l.Knee(context.Background(), p, slo(t, text), nil, nil)
		require.NoError(t, err)
		return c.Rate
	}
	all := knee("0.1s/token", sim.Server{})
	for name, rate := range map[string]float64{
		"stricter": knee("0.05s/token", sim.Server{}),
		"one more": knee("0.1s/token, ttft<300ms@p99", sim.Server{}),
		"memory":   knee("0.1s/token", sim.Server{NumGPUBlocks: 400}),
		"seqs":     knee("0.1s/token", sim.Server{MaxNumSeqs: 8}),
	} {
		require.Less(t, rate, 1.0201*all, name) // twice the precision
		require.Positive(t, rate, name)
	}
}

func searched(t *testing.T, s scenario.Scenario, text string) (*Load, Capacity, error) {
	p, err := scenario.Open(s)
	require.NoError(t, err)
	l, err := NewLoad(p, 1)
	if err != nil {
		return nil, Capacity{}, err
	}
	c, err := l.Find(context.Background(), p, slo(t, text), compare)
	return l, c, err
}

var compare = Options{Precision: 0.02, Horizon: CompareHorizon}

func one(t *testing.T, s scenario.Scenario, text string) *search {
	p, l := load(t, s, 1)
	return l.searches(p, slo(t, text), compare)[0]
}

func load(t *testing.T, s scenario.Scenario, seeds int) (*scenario.Plan, *Load) {
	p, err := scenario.Open(s)
	require.NoError(t, err)
	l, err := NewLoad(p, seeds)
	require.NoError(t, err)
	return p, l
}

func TestTheObjectivesValuesAreTheSimulators(t *testing.T) {
	s := one(t, scenario.Scenario{Load: scenario.Load{Duration: 250}},
		"1s/token,ttft<1s,tpot<1s,e2e<1s,ttft<1s@p90,tpot<1s@p50,e2e<1s@max")
	s.horizon = Horizon{}
	point, err := s.runAt(context.Background(), 2, brief)
	require.NoError(t, err)
	r := point.Result
	require.InEpsilon(t, 2*250, r.Answered, 0.15)
	for i, want := range []float64{r.Normalized.Mean, r.TTFT.Mean, r.TPOT.Mean, r.EndToEnd.Mean, r.TTFT.P90, r.TPOT.P50,
		r.EndToEnd.Max} {
		require.InEpsilon(t, want, float64(point.Values[i]), 0.012, "%d", i) // its quantiles are within 1 %
	}
	require.InEpsilon(t, r.TTFT.Mean, float64(point.Values[1]), 1e-9)
}

// Ensure that starting a search at another rate changes its result by at most 5 %.
func TestTheSearchDoesNotDependOnItsStart(t *testing.T) {
	level.SkipNormal(t)
	rate := func(start float64) float64 {
		s := one(t, scenario.Scenario{}, "0.1s/token")
		require.NoError(t, s.settle(context.Background(), start, 1.02))
		low, _ := s.bracket()
		return low
	}
	require.InEpsilon(t, rate(6), rate(0.7), 0.05)
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

// Ensure that a run ignores one refused request in a hundred. With two, the mean latency must be infinite, so that the
// run misses the objective.
func TestOnePercentMayBeRefused(t *testing.T) {
	const n = 100
	w := &run{rate: 1, requests: make([]workload.Request, n), first: make([]float64, n), done: make([]float64, n),
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

// Ensure that a capacity is below the lowest failing rate, even if a higher rate met the objective.
func TestTheLowestFailureCounts(t *testing.T) {
	s := one(t, scenario.Scenario{}, "0.1s/token")
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

// Ensure that the capacity is not taken from a run with an early end. Such a run must be repeated up to the horizon.
func TestARateThatFailsAfterItsRunWasCutIsNotAnswered(t *testing.T) {
	s := one(t, scenario.Scenario{}, "0.1s/token")
	failing := 3 * s.estimate
	s.precision = 0.05
	s.points = []Point{{Rate: failing, Holds: true, Cut: true}, {Rate: 1.01 * failing}}
	require.NoError(t, s.settle(context.Background(), 1, 2))
	low, high := s.bracket()
	require.True(t, 0 < low && low < high && high < failing, "%v to %v, and %v does not hold", low, high, failing)
	require.False(t, s.cut(low))
}

func TestWithoutACapacityTheSearchEnds(t *testing.T) {
	_, c, err := searched(t, scenario.Scenario{}, "tpot<20ms")
	require.NoError(t, err)
	require.Zero(t, c.Rate, "an iteration takes 22 ms")
	require.Less(t, c.Seeds[0].Fails, 1e-4)

	// Requests have 116 tokens, which do not fit in 4 blocks of 16: they are refused, or wait forever.
	for _, system := range []string{"vllm-v1", "sosp"} {
		_, c, err = searched(t, scenario.Scenario{Load: scenario.Load{Trace: trace(t, 200, ",16,100\n")},
			Server: sim.Server{System: system, NumGPUBlocks: 4}}, "0.5s/token")
		if err == nil {
			require.Zero(t, c.Rate)
		}
	}
	for says, s := range map[string]scenario.Scenario{
		"all arrive at once":        {Load: scenario.Load{Trace: trace(t, 1, ",16,100\n")}},
		"2048 tokens of a sequence": {Load: scenario.Load{Trace: trace(t, 9, ",16,4000\n")}},
		"arrive independently":      {Clients: scenario.Clients{MaxConcurrency: 3}},
	} {
		_, _, err = searched(t, s, "e2e<1h")
		require.ErrorIs(t, err, ErrLoad)
		require.ErrorContains(t, err, says)
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	p, l := load(t, scenario.Scenario{}, 1)
	_, err = l.Find(done, p, slo(t, "0.5s/token"), Options{Precision: 0.02, Pool: NewPool(1), Horizon: CompareHorizon})
	require.ErrorIs(t, err, context.Canceled)
}

// Ensure that at any rate, the arrivals of a trace keep their relative distances, and its requests keep their
// hashes.
func TestATraceKeepsItsShape(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bursts.jsonl")
	row := `{"timestamp": %d000, "input_length": %d, "output_length": 4, "hash_ids": [%d]}` + "\n"
	text := fmt.Sprintf(row, 5, 16, 1) + fmt.Sprintf(row, 5, 17, 2) + fmt.Sprintf(row, 5, 508,
		3) + fmt.Sprintf(row, 7, 18, 4) +
		fmt.Sprintf(row, 9, 19, 5) + fmt.Sprintf(row, 500, 20, 6)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	s := one(t, scenario.Scenario{Load: scenario.Load{Trace: path, Duration: 100},
		Server: sim.Server{MaxModelLen: 500}}, "e2e<1s")
	p := s.plan
	l, err := NewLoad(p, 3)
	require.NoError(t, err)
	require.Equal(t, 1, l.TooLong)
	require.Equal(t, 4, l.Requests(), "those of the first 100 s that fit")
	require.Equal(t, 23, l.Longest)
	require.InDelta(t, 0.75, l.Own, 1e-12, "3 gaps in 4 s")
	source := s.newRun(3, whole)
	var r workload.Request
	for i, want := range []float64{0, 0, 0.5, 1} { // four times as fast
		require.NoError(t, source.Next(&r))
		require.InDelta(t, want, r.Arrival, 1e-12)
		require.Equal(t, []int64{[]int64{1, 2, 4, 5}[i]}, r.Hashes)
	}
}

func TestRequestsThatAreLeftOutAreNotInTheRate(t *testing.T) {
	_, l := load(t, scenario.Scenario{Server: sim.Server{MaxModelLen: 400}}, 2)
	require.InDelta(t, 0.47, l.LeftOut, 0.05)
	for _, d := range l.sets {
		require.InEpsilon(t, firstDrawn, d.requests[firstDrawn-1].Arrival, 0.1, "one a second")
	}
	_, l = load(t, scenario.Scenario{}, 1)
	require.Zero(t, l.LeftOut)
}

func TestEndlessSecondsAreWrittenAsMinusOne(t *testing.T) {
	text, err := Seconds(math.Inf(1)).MarshalJSON()
	require.NoError(t, err)
	require.Equal(t, "-1", string(text))
}

func TestMeansStayWhenMoreIsDrawn(t *testing.T) {
	p, l := load(t, scenario.Scenario{Load: scenario.Load{Seed: 3}}, 1)
	prompt, output := l.Means()
	require.InEpsilon(t, 161, prompt, 0.2)
	before := l.estimate(p)
	_, err := l.sets[0].first(3 * firstDrawn)
	require.NoError(t, err)
	again, further := l.Means()
	require.Equal(t, []float64{prompt, output}, []float64{again, further})
	require.Equal(t, before, l.estimate(p))
}
