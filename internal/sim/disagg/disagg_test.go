package disagg

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/sim"
	"llmmemory/internal/sim/capacity"
	"llmmemory/internal/sim/scenario"
	"llmmemory/internal/sim/workload"
	"llmmemory/internal/testkit/level"
)

func servers(t *testing.T, prefill, decode int) Config {
	p, err := scenario.Open(scenario.Scenario{Model: "llama-3-8b", GPU: "h100-80gb"})
	require.NoError(t, err)
	return Config{Prefill: prefill, Decode: decode, Server: p.Scenario.Server, Cost: p.Model, TokenBytes: 1 << 17, Link: 50, Latency: 0.001}
}

func prompts(n int, gap float64) []workload.Request {
	all := make([]workload.Request, n)
	for i := range all {
		all[i] = workload.Request{Arrival: float64(i) * gap, Prompt: 1000, Output: 20}
	}
	return all
}

// Ensure that keys and values of a prompt take as long as their bytes over the link, that
// those of two prompts go one after the other out of one server, and at once out of two;
// the first token does not wait for them.
func TestATransferTakesItsBytesOverTheLink(t *testing.T) {
	one := float64(1<<17) * 1000 / 1e9 // s, at 1 GB/s
	for _, c := range []struct {
		name    string
		prefill int
		sent    []float64 // s; of two prompts that come at once
	}{
		{"one server sends them one after the other", 1, []float64{one, 2 * one}},
		{"two send them at once", 2, []float64{one, one}},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := servers(t, c.prefill, 1)
			config.Link, config.Latency = 1, 0
			slow, _, err := Run(context.Background(), config, prompts(2, 0))
			require.NoError(t, err)
			for i, want := range c.sent {
				require.InEpsilon(t, want, slow[i].Sent, 1e-9)
				require.Greater(t, slow[i].Done, slow[i].First+want)
			}
			config.Link, config.Latency = 1e6, 0.5
			fast, _, err := Run(context.Background(), config, prompts(2, 0))
			require.NoError(t, err)
			for i := range fast {
				require.Equal(t, fast[i].First, slow[i].First)
				require.InDelta(t, 0.5, fast[i].Sent, 1e-3)
			}
		})
	}
}

// Ensure that a prompt takes no time where it is received, so that tokens are as even as
// if nobody else came.
func TestPromptsDoNotDelayTheTokensOfADecodeServer(t *testing.T) {
	requests := prompts(40, 0.05)
	both := servers(t, 0, 1)
	apart := servers(t, 1, 1)
	slowest := func(c Config) (worst float64) {
		answers, recomputed, err := Run(context.Background(), c, requests)
		require.NoError(t, err)
		require.Zero(t, recomputed)
		for _, a := range answers {
			require.False(t, a.Refused)
			require.Greater(t, a.Done, a.First)
			worst = max(worst, (a.Done-a.First-a.Sent)/19)
		}
		return worst
	}
	require.Less(t, slowest(apart), 0.75*slowest(both))
}

// Ensure that servers that do both are what llmsim run simulates.
func TestServersThatDoBothAreThoseOfARun(t *testing.T) {
	requests := prompts(50, 0.02)
	c := servers(t, 0, 1)
	answers, _, err := Run(context.Background(), c, requests)
	require.NoError(t, err)
	want, err := sim.Run(context.Background(), sim.Config{Server: c.Server, Cost: c.Cost}, &source{requests: requests, left: all(50)})
	require.NoError(t, err)
	first := 0.0
	for _, a := range answers {
		first += (a.First - a.Arrival) / 50
	}
	require.InEpsilon(t, want.TTFT.Mean, first, 1e-9)
}

// Ensure that the search finds rates that hold, and 10 % more do not; and that a link
// that is too slow is seen.
func TestTheSearchFindsWhatARatioSustains(t *testing.T) {
	level.SkipQuick(t)
	slo, err := capacity.ParseSLO("ttft<1s@p90,tpot<90ms@p90")
	require.NoError(t, err)
	q := Question{Scenario: scenario.Scenario{Model: "llama-3-8b", GPU: "l4", Workload: "alpaca"}, SLO: slo, Servers: 2, Link: 10, Latency: 0.001, Seconds: 60, Pool: capacity.NewPool(2)}
	ratios, seconds, err := Search(context.Background(), q)
	require.NoError(t, err)
	require.Len(t, ratios, 2)
	require.Greater(t, seconds, q.Seconds, "60 s are not 30 answers of 58 tokens")
	q.Seconds = seconds
	p, err := scenario.Open(q.Scenario)
	require.NoError(t, err)
	for _, r := range ratios {
		require.Positive(t, r.Rate)
		again := r
		holds, err := q.try(context.Background(), p, &again, r.Rate)
		require.NoError(t, err)
		require.True(t, holds)
		require.Equal(t, r, again)
		holds, err = q.try(context.Background(), p, &again, 1.1*r.Rate)
		require.NoError(t, err)
		require.False(t, holds)
	}
	q.Link = 0.001 // 2.5 s for a prompt of 19 tokens
	slow := Ratio{Prefill: 1, Decode: 1}
	require.NoError(t, q.find(context.Background(), p, &slow))
	require.Zero(t, slow.Rate)
}

// Ensure that values are a plan's: up to 1 % of the requests may be refused, and more make them
// infinite.
func TestValuesAreThoseOfAPlan(t *testing.T) {
	slo, err := capacity.ParseSLO("ttft<1s@p50,e2e<9s")
	require.NoError(t, err)
	requests := prompts(200, 1)
	answers := make([]Answer, 200)
	for i := range answers {
		at := requests[i].Arrival
		answers[i] = Answer{Arrival: at, First: at + 0.5, Done: at + 2, Output: 20}
	}
	answers[7].Refused, answers[9].Refused = true, true
	require.InDeltaSlice(t, []float64{0.5, 2}, values(slo, requests, answers), 1e-9)
	answers[11].Refused = true
	require.True(t, math.IsInf(values(slo, requests, answers)[1], 1))
}

// Ensure that a queue which grows in front of the decode servers is seen, where first tokens are as
// fast as ever; and that a batch which fills at first is no queue.
func TestAQueueBeforeTheDecodeServersIsSeen(t *testing.T) {
	answers := make([]Answer, 1000)
	for i := range answers {
		at := float64(i) / 10
		answers[i] = Answer{Arrival: at, First: at + 0.1, Done: at + 8, Output: 20}
	}
	require.False(t, grows(answers, 100), "80 are answered at once from the beginning of what is measured")
	for i := range answers {
		answers[i].Done += 0.02 * answers[i].Arrival // 2 % more come than are served
	}
	require.True(t, grows(answers, 100))
}

func TestServersDoBothWhereTheGainMayBeChance(t *testing.T) {
	for _, c := range []struct {
		name  string
		rates []float64
		best  int
	}{
		{"both", []float64{10, 9, 5}, 0},
		{"a gain that may be chance", []float64{10, 10.6, 5}, 0},
		{"a gain", []float64{10, 10.8, 11}, 2},
		{"only apart", []float64{0, 1, 0.5}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ratios []Ratio
			for i, r := range c.rates {
				ratios = append(ratios, Ratio{Prefill: i, Decode: 3 - i, Rate: r})
			}
			best, most := Best(ratios)
			require.Equal(t, c.best, best.Prefill)
			require.Equal(t, slices.Max(c.rates), most.Rate)
		})
	}
}

func TestImpossibleDivisionsAreRefused(t *testing.T) {
	good := Question{Scenario: scenario.Scenario{Model: "llama-3-8b", GPU: "l4"}, Servers: 2, Link: 1, Seconds: 60}
	for _, c := range []struct {
		name   string
		change func(*Question)
		want   string
	}{
		{"one server", func(q *Question) { q.Servers = 1 }, "1 servers"},
		{"no link", func(q *Question) { q.Link = 0 }, "0 GB/s"},
		{"transfers without end", func(q *Question) { q.Latency = math.Inf(1) }, "+Inf s for each transfer: want"},
		{"a short run", func(q *Question) { q.Seconds = 1 }, "1 s"},
		{"a trace", func(q *Question) { q.Scenario.Trace = "x.csv" }, "not with a trace"},
		{"no request fits", func(q *Question) { q.Scenario.Server.MaxModelLen = 2 }, "longer than the 2 tokens of a sequence"},
		{"no such model", func(q *Question) { q.Scenario.Model = "llama-9" }, "known are"},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := good
			c.change(&q)
			_, _, err := Search(context.Background(), q)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, _, err := Run(context.Background(), Config{Prefill: 1}, nil)
	require.ErrorIs(t, err, sim.ErrConfig)
}
