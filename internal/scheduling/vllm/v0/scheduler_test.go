package v0

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/serve"
)

type driven struct {
	*Scheduler
	t  *testing.T
	it serve.Iteration
}

func scheduler(t *testing.T, c SchedulerConfig) *driven {
	s, err := NewScheduler(c)
	require.NoError(t, err)
	return &driven{Scheduler: s, t: t}
}

func (s *driven) add(id, prompt int) {
	require.NoError(s.t, s.Add(serve.Request{ID: id, Prompt: prompt}))
}

func (s *driven) step() { require.NoError(s.t, s.Step(&s.it)) }

func TestTheSchedulerRefusesWhatCannotBe(t *testing.T) {
	good := SchedulerConfig{Manager: Config{BlockSize: 2, NumGPUBlocks: 8}, MaxNumBatchedTokens: 8, MaxNumSeqs: 2, MaxModelLen: 8}
	for name, spoil := range map[string]func(*SchedulerConfig){
		"no tokens":          func(c *SchedulerConfig) { c.MaxNumBatchedTokens = 0 },
		"an unknown mode":    func(c *SchedulerConfig) { c.Mode = 2 },
		"swapped prefixes":   func(c *SchedulerConfig) { c.Mode, c.Manager.EnablePrefixCaching = Swap, true },
		"chunks of prefixes": func(c *SchedulerConfig) { c.Chunked, c.Manager.EnablePrefixCaching = true, true },
		"a bad manager":      func(c *SchedulerConfig) { c.Manager.BlockSize = 0 },
	} {
		c := good
		spoil(&c)
		_, err := NewScheduler(c)
		require.ErrorIs(t, err, ErrConfig, name)
	}
	s := scheduler(t, good)
	require.ErrorIs(t, s.Add(serve.Request{ID: 1}), serve.ErrRequest)
	require.ErrorIs(t, s.Add(serve.Request{ID: 1, Prompt: 1, Seqs: 2}), serve.ErrRequest)
	s.add(1, 1)
	_, err := s.Finish(nil, 1, 2)
	require.ErrorIs(t, err, serve.ErrRequest)
	_, err = s.Finish(nil, 1, 1)
	require.ErrorIs(t, err, serve.ErrRequest)
	answered, err := s.Finish(nil, 1)
	require.NoError(t, err)
	require.Equal(t, []int{1}, answered)

	good.Manager.EnablePrefixCaching = true
	s = scheduler(t, good)
	require.ErrorIs(t, s.Add(serve.Request{ID: 1, Prompt: 1}), serve.ErrRequest, "whose tokens are not given")
	require.NoError(t, s.Add(serve.Request{ID: 1, Prompt: 1, Tokens: []int32{1}}))
	var it serve.Iteration
	require.NoError(t, s.Step(&it))
	require.ErrorIs(t, s.Step(&it), ErrSequence, "whose answer is not given")
	require.NoError(t, s.Check())
}

// Ensure that the CPU blocks of the dropped request stay allocated, as in vLLM.
func TestASwappedRequestTooLongForTheGPUIsDropped(t *testing.T) {
	s := scheduler(t, SchedulerConfig{
		Manager:             Config{BlockSize: 1, NumGPUBlocks: 3, NumCPUBlocks: 4},
		MaxNumBatchedTokens: 8, MaxNumSeqs: 2, MaxModelLen: 8, Mode: Swap,
	})
	s.add(7, 3)
	s.step()
	s.step()
	require.Equal(t, []serve.Preemption{{ID: 7, Swapped: true}}, s.it.Preempted)
	require.True(t, s.it.Empty())
	require.False(t, s.it.Idle())
	s.add(8, 1)
	s.step()
	require.Equal(t, []int{7}, s.it.Ignored)
	s.step()
	require.Equal(t, []serve.Prefill{{ID: 8, Tokens: 1, Seqs: 1, Last: true}}, s.it.Prefills)
	require.Equal(t, 1, s.Manager().View.FreeCPU())
	require.NoError(t, s.Check())
}

// Ensure that every request is still in a queue after a failed step. The step fails because the CPU is full.
func TestAFailedStepLosesNobody(t *testing.T) {
	s := scheduler(t, SchedulerConfig{
		Manager:             Config{BlockSize: 1, NumGPUBlocks: 6, NumCPUBlocks: 1},
		MaxNumBatchedTokens: 8, MaxNumSeqs: 3, MaxModelLen: 8, Mode: Swap,
	})
	for id := 1; id <= 3; id++ {
		s.add(id, 2)
	}
	s.step()
	require.Len(t, s.it.Prefills, 3)
	for range 2 {
		require.ErrorIs(t, s.Step(&s.it), ErrNoFreeBlocks)
		require.True(t, s.it.Empty())
		_, running, _ := s.Queues()
		require.Equal(t, []int{1, 2, 3}, running)
		require.NoError(t, s.Check())
	}
	_, err := s.Finish(nil, 2)
	require.NoError(t, err)
	s.step()
	require.Equal(t, []serve.Decode{{ID: 1, Context: 3, Seqs: 1}, {ID: 3, Context: 3, Seqs: 1}}, s.it.Decodes)
}

// Ensure that requests are swapped in only up to max_num_seqs, although there are blocks for more.
func TestSwappingInFillsTheLimitOfSequences(t *testing.T) {
	s := scheduler(t, SchedulerConfig{
		Manager:             Config{BlockSize: 1, NumGPUBlocks: 11, NumCPUBlocks: 10},
		MaxNumBatchedTokens: 10, MaxNumSeqs: 2, MaxModelLen: 20, Mode: Swap, Chunked: true,
	})
	for id, prompt := range []int{6, 4, 2, 0, 1} { // two before the first step
		if prompt > 0 {
			s.add(1+id, prompt)
		}
		if id > 0 {
			s.step()
		}
	}
	_, running, swapped := s.Queues()
	require.Equal(t, [][]int{{1, 5}, {2, 3}}, [][]int{running, swapped})
	_, err := s.Finish(nil, 1)
	require.NoError(t, err)
	s.step()
	_, running, swapped = s.Queues()
	require.Equal(t, []int{2, 5}, running, "one runs, and one more fits, which comes first")
	require.Equal(t, []int{3}, swapped)
	require.Equal(t, OK, s.manager.CanSwapIn(0, &s.requests.At(s.swapped.Head()).Seq), "there are blocks for 3")
	require.NoError(t, s.Check())
}

func TestSchedulerCheckSeesDamage(t *testing.T) {
	for name, damage := range map[string]func(s *Scheduler){
		"a request in no queue":      func(s *Scheduler) { s.running.Remove(s.running.Head()) },
		"a request in a wrong queue": func(s *Scheduler) { at := s.running.Head(); s.running.Remove(at); s.swapped.PushBack(at) },
		"a waiting one with blocks":  func(s *Scheduler) { at := s.running.Head(); s.running.Remove(at); s.waiting.PushFront(at) },
		"a running one without":      func(s *Scheduler) { at := s.waiting.Head(); s.waiting.Remove(at); s.running.PushBack(at) },
		"a token that is not there":  func(s *Scheduler) { s.requests.At(s.running.Head()).computed++ },
		"another one's id":           func(s *Scheduler) { s.requests.At(s.running.Head()).id++ },
	} {
		s := scheduler(t, SchedulerConfig{Manager: Config{BlockSize: 1, NumGPUBlocks: 4, NumCPUBlocks: 4}, MaxNumBatchedTokens: 8, MaxNumSeqs: 3, MaxModelLen: 8})
		for id := range 2 {
			s.add(id, 3)
		}
		s.step()
		require.NoError(t, s.Check())
		damage(s.Scheduler)
		require.Error(t, s.Check(), name)
	}
}
