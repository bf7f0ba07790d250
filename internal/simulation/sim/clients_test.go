package sim

import (
	"container/heap"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/simulation/workload"
)

func alpacaAtOnce(t *testing.T, count int) workload.Source {
	t.Helper()
	lengths, _, err := workload.Named("alpaca")
	require.NoError(t, err)
	s, err := workload.Gamma(lengths, 1, 1, 1, 0, count)
	require.NoError(t, err)
	return workload.AtOnce(s)
}

// Ensure that the number of unanswered requests reaches the limit and never exceeds it. Ensure that the latency of a
// request does not include its wait at the client.
func TestAClosedLoopKeepsItsConcurrency(t *testing.T) {
	for _, most := range []int{1, 8} {
		underWay, highest := 0, 0
		arrivals := []float64{}
		config := Config{
			Server: Server{System: "sosp"}, Cost: paperCost(t), MaxConcurrency: most,
			Departed: func(d Departure) {
				arrivals = append(arrivals, d.Arrival)
				underWay--
			},
		}
		r, err := newRun(config, alpacaAtOnce(t, 60))
		require.NoError(t, err)
		for !r.clients.Done() || r.requests.live > 0 {
			before := r.r.Arrived
			require.NoError(t, r.arrive())
			underWay += r.r.Arrived - before
			highest = max(highest, underWay)
			require.NoError(t, r.iterate())
		}
		result := r.result()
		require.Equal(t, 60, result.Answered)
		require.Equal(t, most, highest)
		if most == 1 { // alone, each has its first token after its prompt
			require.InDelta(t, result.TTFT.P50, result.TTFT.Max, 0.5*result.TTFT.P50)
		}
		last := 0.0
		for _, at := range arrivals {
			last = max(last, at)
		}
		require.Positive(t, last, "a request that had to wait is sent later")
	}
}

// Ensure that turns find a large part of the conversation so far in the prefix cache.
func TestTurnsFollowTheirAnswers(t *testing.T) {
	lengths, _, err := workload.Named("sharegpt")
	require.NoError(t, err)
	first, err := workload.Gamma(lengths, 0.2, 1, 1, 0, 20)
	require.NoError(t, err)
	source, err := workload.Conversations(first, lengths, workload.Talk{Turns: 3, Think: 5}, 1, 2048)
	require.NoError(t, err)
	result, err := Run(context.Background(), Config{Server: Server{System: "vllm-v1", NumGPUBlocks: 4000},
		Cost: paperCost(t)}, source)
	require.NoError(t, err)
	require.Greater(t, result.Answered, 25)
	require.Equal(t, result.Arrived, result.Answered)
	require.Greater(t, result.Hits, result.Prompted/4, "turns begin with what is cached")
}

func TestGoodputCountsWhatKeepsEveryLimit(t *testing.T) {
	run := func(g Goodput) *Result {
		r, err := Run(context.Background(), Config{Server: Server{System: "sosp"}, Cost: paperCost(t), MaxConcurrency: 4,
			Goodput: g}, alpacaAtOnce(t, 40))
		require.NoError(t, err)
		return r
	}
	unlimited := run(Goodput{})
	require.Zero(t, unlimited.Good)
	all := run(Goodput{E2E: 1e9})
	require.Equal(t, 40, all.Good)
	require.InEpsilon(t, 40/all.Seconds, all.Goodput, 1e-9)
	some := run(Goodput{E2E: all.EndToEnd.P50})
	require.InDelta(t, 20, some.Good, 3)
	require.Zero(t, run(Goodput{TTFT: 1e-9}).Good)
}

type talks struct{ requests []workload.Request }

func (s *talks) Next(r *workload.Request) error {
	if len(s.requests) == 0 {
		return io.EOF
	}
	*r, s.requests = s.requests[0], s.requests[1:]
	return nil
}

func (*talks) Follow(session int64, answered float64, r *workload.Request) bool {
	*r = workload.Request{Session: -session, Arrival: answered + 1}
	return session > 0
}

// Ensure that the next turn of a conversation is sent before a new request if both are due at the same time.
func TestARequestIsSentWhenThereIsAPlace(t *testing.T) {
	c, err := NewClients(&talks{[]workload.Request{{Session: 1, Arrival: 2}, {Session: 2, Arrival: 2.5}}}, 2)
	require.NoError(t, err)
	require.False(t, c.Full(1))
	require.True(t, c.Full(2))
	c.Answered(9, 1, 0) // the next turn comes at 2, too; both places are free
	var r workload.Request
	require.False(t, c.take(&r), "the turn")
	require.Equal(t, workload.Request{Session: -9, Arrival: 2}, r)
	c.Answered(0, 2.2, 0) // only one place was taken
	require.True(t, c.take(&r))
	require.Equal(t, 2.0, r.Arrival)
	require.NoError(t, c.pull())
	c.Answered(0, 3, 1) // both places were taken until now
	require.True(t, c.take(&r))
	require.Equal(t, 3.0, r.Arrival)
}

func TestTurnsComeInOrder(t *testing.T) {
	var c Clients
	c.ended = true
	for _, at := range []float64{5, 3, 9, 1, 7, 3, 2} {
		heap.Push(&c.turns, &workload.Request{Arrival: at})
	}
	var got []float64
	for !c.Done() {
		var r workload.Request
		require.False(t, c.take(&r))
		got = append(got, r.Arrival)
	}
	require.Equal(t, []float64{1, 2, 3, 3, 5, 7, 9}, got)
}
