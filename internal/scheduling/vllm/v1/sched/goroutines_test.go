package sched

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/invariants"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

func TestAddingAndFinishingAllocatesNothing(t *testing.T) {
	if invariants.Enabled {
		t.Skip("a check allocates")
	}
	c := small(40)
	c.Cache.EnableEvents = true
	s := newSmall(t, c)
	var step Step
	var out Outcome
	var events pool.Events
	prompt, counts, sampled := tokens(9, 1), []int32{1}, []int32{3}
	cycle := func() {
		id, err := s.Add(Spec{Tokens: prompt, MaxTokens: 40})
		if err != nil {
			t.Fatal(err)
		}
		for range 9 {
			if s.Schedule(&step) != nil || s.Update(counts, sampled, &out) != nil {
				t.Fatal("a step failed")
			}
		}
		s.Abort(id)
		s.Monitor.TakeEvents(&events)
	}
	for range 20 {
		cycle()
	}
	require.Zero(t, testing.AllocsPerRun(100, cycle))
}

func TestGoroutinesCanCallEverythingAtOnce(t *testing.T) {
	c := small(60)
	c.MaxNumSeqs, c.NumSpeculativeTokens, c.Cache.EnableEvents = 16, 2, true
	s := newSmall(t, c)
	requests := 40 // of each goroutine
	if invariants.Enabled {
		requests = 10 // each call takes longer
	}
	var workers, stepper sync.WaitGroup
	done := make(chan struct{})
	stepper.Go(func() {
		var step Step
		var events pool.Events
		for {
			select {
			case <-done:
				return
			default:
				loadStep(t, s, &step)
				s.Monitor.TakeEvents(&events)
			}
		}
	})
	for g := range 32 {
		workers.Go(func() {
			for i := range requests {
				loadRequest(t, s, g, i)
			}
		})
	}
	workers.Wait()
	close(done)
	stepper.Wait()
	var step Step
	for i := 0; s.Monitor.Load().Running+s.Monitor.Load().Waiting > 0; i++ {
		if i > 5000 {
			t.Fatal("requests do not finish")
		}
		loadStep(t, s, &step)
	}
	require.NoError(t, s.Check())
	require.Equal(t, 59, s.Monitor.Load().FreeBlocks)
}

// loadStep tolerates that requests go between Schedule and Update.
func loadStep(t *testing.T, s *Scheduler, step *Step) {
	if err := s.Schedule(step); err != nil {
		t.Error(err)
		return
	}
	var counts, sampled []int32
	for _, row := range step.Rows {
		computed, all, err := s.Monitor.NumComputedTokens(row.ID)
		n := int32(0)
		if err == nil && computed >= all {
			n = 1
			sampled = append(sampled, int32(all))
		}
		counts = append(counts, n)
	}
	var out Outcome
	if err := s.Update(counts, sampled, &out); err != nil {
		t.Error(err)
	}
}

func loadRequest(t *testing.T, s *Scheduler, g, i int) {
	id, err := s.Add(Spec{Tokens: tokens(5+g%3*4, g%2), MaxTokens: 1 + i%7, Arrival: float64(100*i + g)})
	if err != nil {
		t.Error(err)
		return
	}
	switch i % 5 {
	case 0:
		s.Abort(id)
	case 1:
		_, _ = s.Fork(id, Child{Last: -1, Arrival: float64(100*i+g) + 0.5}) // may be in the middle of a step, or over
	case 2:
		_ = s.SetDrafts([]ID{id}, []int32{2}, []int32{1, 2})
	case 3:
		_, _ = s.Reset(g == 7)
		s.Monitor.Load()
	case 4:
		_, _ = s.Monitor.Table(nil, id, 0)
		s.Monitor.TakeStats()
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}
