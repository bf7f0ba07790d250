package engine_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
)

// Ensure that while requests come and some of them go before their end, the others are told what
// they are told alone, those that go a beginning of it, and that all blocks are free in the end:
// with two steps in flight, and with one, in little memory.
func TestCancelsBesideStepsInFlightChangeNoAnswer(t *testing.T) {
	const n = 48
	rnd := rand.New(rand.NewPCG(31, 7))
	requests, patience := make([]engine.Request, n), make([]int, n)
	want := make([]string, n)
	one := startWorkers(t, 1, func(c *engine.Config) { c.NoPrefixCaching, c.NoAsyncScheduling = true, true }, nil)
	for i := range requests {
		requests[i] = randomRequest(rnd)
		requests[i].N = 1 // a transcript is then in order
		patience[i] = 1000
		if rnd.IntN(3) == 0 {
			patience[i] = rnd.IntN(12)
		}
		want[i] = strings.TrimSuffix(transcript(t, one, requests[i]), "\n")
	}
	counts := &counter{}
	for _, alone := range []bool{false, true} {
		e := startWorkers(t, 1, func(c *engine.Config) {
			c.BlockSize, c.MaxModelLen, c.KVCacheBytes = 8, 240, 40*8*2*2*4*8*4
			c.MaxNumBatchedTokens, c.MaxNumSeqs, c.NoAsyncScheduling = 24, 20, alone
		}, counts)
		got := make([]string, n)
		var wait sync.WaitGroup
		for i, r := range requests {
			wait.Go(func() { got[i] = impatient(t, e, r, patience[i]) })
		}
		wait.Wait()
		for i := range requests {
			require.True(t, strings.HasPrefix(want[i], got[i]), "request %d: %+v\n%s\n%s", i, requests[i], want[i], got[i])
			if patience[i] == 1000 {
				require.Equal(t, want[i], got[i], "request %d: %+v", i, requests[i])
			}
		}
		requireIdle(t, e)
	}
	require.NotZero(t, counts.preempted.Load(), "nobody lost its blocks: the test shows less than it should")
}

// impatient reads events up to a number of them, and cancels.
func impatient(t *testing.T, e *engine.Engine, r engine.Request, most int) string {
	s, err := e.Submit(r)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer s.Cancel()
	var text strings.Builder
	for seen := 0; seen < most; {
		events, err := s.Next(context.Background())
		if err != nil {
			t.Error(err)
		}
		if events == nil {
			break
		}
		for _, event := range events {
			if seen++; seen <= most {
				writeEvent(&text, event)
			}
		}
	}
	return text.String()
}
