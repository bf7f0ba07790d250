package paper

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/serve"
)

type script struct {
	t *testing.T
	s serve.Scheduler
	serve.Iteration
}

func (x *script) add(requests ...serve.Request) {
	for _, r := range requests {
		require.NoError(x.t, x.s.Add(r))
	}
}

// step runs one iteration. It returns the number of tokens of each prompt and the context length of each decode, by
// request.
func (x *script) step() (prompts, decodes map[int]int) {
	require.NoError(x.t, x.s.Step(&x.Iteration))
	prompts, decodes = map[int]int{}, map[int]int{}
	for _, p := range x.Prefills {
		prompts[p.ID] = p.Tokens
	}
	for _, d := range x.Decodes {
		decodes[d.ID] = d.Context
	}
	return prompts, decodes
}

func (x *script) expect(prompts, decodes map[int]int) {
	x.t.Helper()
	p, d := x.step()
	require.Equal(x.t, prompts, p, "prompts")
	require.Equal(x.t, decodes, d, "decodes")
}

type lengths = map[int]int

var wide = Limits{MaxNumBatchedTokens: 100, MaxNumSeqs: 10}

func (x *script) finish(ids ...int) []int {
	answered, err := x.s.Finish(nil, ids...)
	require.NoError(x.t, err)
	return answered
}

func sosp(t *testing.T, config Config, limits Limits, alwaysSwap bool) (*script, *Scheduler) {
	s, err := NewSOSP(config, limits, alwaysSwap)
	require.NoError(t, err)
	return &script{t: t, s: s}, s
}

func TestPromptsJoinDecodesWithinTheTokenBudget(t *testing.T) {
	x, _ := sosp(t, Config{BlockSize: 4, NumGPUBlocks: 100}, Limits{MaxNumBatchedTokens: 20, MaxNumSeqs: 10}, false)
	x.add(serve.Request{ID: 1, Prompt: 10}, serve.Request{ID: 2, Prompt: 10, Seqs: 2}, serve.Request{ID: 3, Prompt: 18}, serve.Request{ID: 4, Prompt: 1})
	x.expect(lengths{1: 10, 2: 10}, lengths{})
	x.expect(lengths{}, lengths{1: 11, 2: 11}) // 3 tokens, and 18 are too many; no request overtakes another
	x.finish(2)
	x.expect(lengths{3: 18, 4: 1}, lengths{1: 12})
	require.Equal(t, 20, x.Tokens)
}

// Ensure that MaxNumSeqs limits running requests plus the sequences of the next request, as in the paper's artifact.
func TestTheLimitCountsRunningRequestsAndNewSequences(t *testing.T) {
	x, _ := sosp(t, Config{BlockSize: 4, NumGPUBlocks: 100}, Limits{MaxNumBatchedTokens: 100, MaxNumSeqs: 4}, false)
	x.add(serve.Request{ID: 1, Prompt: 1, Seqs: 3}, serve.Request{ID: 2, Prompt: 1, Seqs: 3}, serve.Request{ID: 3, Prompt: 1, Seqs: 3})
	x.expect(lengths{1: 1, 2: 1}, lengths{})
}

// Ensure that the latest request is preempted, and is not admitted again in the same step.
func TestVictimsWaitByArrival(t *testing.T) {
	x, s := sosp(t, Config{BlockSize: 1, NumGPUBlocks: 9}, wide, false)
	for id := 1; id <= 4; id++ {
		x.add(serve.Request{ID: id, Prompt: 2})
	}
	x.expect(lengths{1: 2, 2: 2, 3: 2, 4: 2}, lengths{})
	x.add(serve.Request{ID: 5, Prompt: 1})
	x.expect(lengths{}, lengths{1: 3, 2: 3, 3: 3}) // 4 went for 2 and 3
	waiting, running, _ := s.Queues()
	require.Equal(t, []int{4, 5}, waiting)
	require.Equal(t, []int{1, 2, 3}, running)
	require.Equal(t, []serve.Preemption{{ID: 4}}, x.Preempted)
	x.expect(lengths{}, lengths{1: 4, 2: 4})
	waiting, _, _ = s.Queues()
	require.Equal(t, []int{3, 4, 5}, waiting)
	x.finish(1)
	x.expect(lengths{3: 4}, lengths{2: 5}) // its prompt and two tokens
}

// Ensure that no request is admitted while a group is swapped out. After the swap, the sequences of the group must
// still share blocks.
func TestSwappedGroupsComeBackWhole(t *testing.T) {
	x, s := sosp(t, Config{BlockSize: 2, NumGPUBlocks: 9, NumCPUBlocks: 8}, wide, false)
	x.add(serve.Request{ID: 1, Prompt: 8}, serve.Request{ID: 2, Prompt: 3, Seqs: 2})
	x.expect(lengths{1: 8, 2: 3}, lengths{}) // 4 and 2 blocks
	x.expect(lengths{}, lengths{1: 9, 2: 4}) // 5 and 3: one of the group's blocks was copied
	require.Equal(t, []device.Pair{{Src: 3, Dst: 1}}, x.Copies)
	x.add(serve.Request{ID: 3, Prompt: 1})
	x.expect(lengths{}, lengths{1: 10})
	require.Equal(t, []serve.Preemption{{ID: 2, Swapped: true}}, x.Preempted)
	require.Len(t, x.SwapOut, 3)
	require.Equal(t, serve.Usage{Blocks: 9, Used: 5, Logical: 5}, s.Usage())
	x.expect(lengths{}, lengths{1: 11}) // the group needs 3 blocks and 2 to append; fewer than 5 are free, and request 3 must wait
	x.finish(1)
	x.expect(lengths{3: 1}, lengths{2: 5})
	require.Len(t, x.SwapIn, 3)
	require.NoError(t, s.Check())
}

// Ensure that a group is swapped in if the number of running requests, plus the number of sequences of the group, is
// exactly MaxNumSeqs.
func TestASwappedGroupMayFillTheLimitOfSequences(t *testing.T) {
	x, s := sosp(t, Config{BlockSize: 1, NumGPUBlocks: 29, NumCPUBlocks: 10}, Limits{MaxNumBatchedTokens: 100, MaxNumSeqs: 4}, false)
	x.add(serve.Request{ID: 1, Prompt: 4, Seqs: 4}, serve.Request{ID: 2, Prompt: 1}, serve.Request{ID: 3, Prompt: 2, Seqs: 2})
	x.expect(lengths{1: 4, 2: 1, 3: 2}, lengths{}) // 7 blocks, and then one for each sequence
	x.expect(lengths{}, lengths{1: 5, 2: 2, 3: 3})
	x.expect(lengths{}, lengths{1: 6, 2: 3, 3: 4})
	x.expect(lengths{}, lengths{1: 7, 2: 4, 3: 5})
	x.expect(lengths{}, lengths{1: 8, 2: 5})
	require.Equal(t, []serve.Preemption{{ID: 3, Swapped: true}}, x.Preempted)
	for i := range 3 {
		require.NoError(t, s.Refork(&x.Iteration, 1, i, 3)) // frees 4 blocks
	}
	x.expect(lengths{}, lengths{1: 9, 2: 6, 3: 6})
}

// Ensure that a preemption by recomputation does not prevent the swap-in of a group in the same step. Only a preemption
// by swapping prevents it.
func TestAGroupComesBackInAStepWithARecomputation(t *testing.T) {
	x, _ := sosp(t, Config{BlockSize: 1, NumGPUBlocks: 12, NumCPUBlocks: 12}, wide, false)
	x.add(serve.Request{ID: 1, Prompt: 6}, serve.Request{ID: 2, Prompt: 3}, serve.Request{ID: 3, Prompt: 2, Seqs: 2})
	x.expect(lengths{1: 6, 2: 3, 3: 2}, lengths{})
	x.expect(lengths{}, lengths{1: 7, 2: 4})
	require.Equal(t, []serve.Preemption{{ID: 3, Swapped: true}}, x.Preempted)
	x.expect(lengths{}, lengths{1: 8, 3: 3})
	require.Equal(t, []serve.Preemption{{ID: 2}}, x.Preempted)
	require.Len(t, x.SwapIn, 2)

	x.finish(1)
	x.expect(lengths{2: 5}, lengths{3: 4})
	x.expect(lengths{}, lengths{2: 6})
	require.Equal(t, []serve.Preemption{{ID: 3, Swapped: true}}, x.Preempted)
}

func TestThePrefixTakesNoTokensOfAnIteration(t *testing.T) {
	s, err := NewSOSP(Config{BlockSize: 4, NumGPUBlocks: 100, Prefix: 8}, Limits{MaxNumBatchedTokens: 10, MaxNumSeqs: 20}, false)
	require.NoError(t, err)
	x := &script{t: t, s: s}
	for id := range 6 {
		x.add(serve.Request{ID: id, Prompt: 10})
	}
	prompts, _ := x.step()
	require.Len(t, prompts, 5, "two tokens each")
	require.Equal(t, 10, x.Tokens)
}

// Ensure that if the CPU has no space, the step returns an error and every request stays in its queue.
func TestAlwaysSwapSwapsSingleSequences(t *testing.T) {
	for _, cpu := range []int{2, 1} {
		x, s := sosp(t, Config{BlockSize: 1, NumGPUBlocks: 4, NumCPUBlocks: cpu}, wide, true)
		x.add(serve.Request{ID: 1, Prompt: 2}, serve.Request{ID: 2, Prompt: 2})
		x.expect(lengths{1: 2, 2: 2}, lengths{})
		if cpu == 2 {
			x.expect(lengths{}, lengths{1: 3})
			require.Len(t, x.SwapOut, 2)
			continue
		}
		require.ErrorIs(t, s.Step(&x.Iteration), ErrNoFreeBlocks)
		_, running, _ := s.Queues()
		require.Equal(t, []int{1, 2}, running)
		require.NoError(t, s.Check())
	}
}

func TestRequestsThatCanNeverRunAreDropped(t *testing.T) {
	x, _ := sosp(t, Config{BlockSize: 1, NumGPUBlocks: 4}, wide, false)
	x.add(serve.Request{ID: 1, Prompt: 4}, serve.Request{ID: 2, Prompt: 1})
	x.expect(lengths{1: 4}, lengths{})
	x.expect(lengths{}, lengths{}) // it is its own victim
	x.expect(lengths{2: 1}, lengths{})
	require.Equal(t, []int{1}, x.Ignored)
}

// Ensure that the CPU blocks of the dropped group become free.
func TestASwappedGroupTooLargeForTheGPUIsDropped(t *testing.T) {
	x, s := sosp(t, Config{BlockSize: 1, NumGPUBlocks: 4, NumCPUBlocks: 4}, wide, false)
	x.add(serve.Request{ID: 1, Prompt: 2, Seqs: 2}, serve.Request{ID: 2, Prompt: 1})
	x.expect(lengths{1: 2, 2: 1}, lengths{})
	x.finish(2)
	x.expect(lengths{}, lengths{1: 3}) // all 4 blocks
	x.expect(lengths{}, lengths{})
	require.Equal(t, []serve.Preemption{{ID: 1, Swapped: true}}, x.Preempted)
	x.expect(lengths{}, lengths{}) // 4 and one for each are more than 4
	require.Equal(t, []int{1}, x.Ignored)
	require.NoError(t, s.Check())
	require.Zero(t, s.requests.Len())
}

func TestBeamsShareBlocksWithoutCopies(t *testing.T) {
	x, s := sosp(t, Config{BlockSize: 2, NumGPUBlocks: 20}, wide, false)
	x.add(serve.Request{ID: 1, Prompt: 3, Seqs: 2})
	x.expect(lengths{1: 3}, lengths{})
	x.expect(lengths{}, lengths{1: 4})
	require.Equal(t, serve.Usage{Blocks: 20, Used: 3, Logical: 4}, s.Usage())
	require.NoError(t, s.Refork(&x.Iteration, 1, 0, 1))
	require.Equal(t, s.Table(1, 1), s.Table(1, 0))
	require.Equal(t, serve.Usage{Blocks: 20, Used: 2, Logical: 4}, s.Usage())
	x.expect(lengths{}, lengths{1: 5})
	require.Empty(t, x.Copies, "the shared blocks are full")
}

func TestBlocksAreFreedInTheOrderOfTheRunningQueue(t *testing.T) {
	free := func(ids ...int) []int32 {
		x, s := sosp(t, Config{BlockSize: 1, NumGPUBlocks: 4}, wide, false)
		x.add(serve.Request{ID: 1, Prompt: 1}, serve.Request{ID: 2, Prompt: 1}, serve.Request{ID: 3, Prompt: 1})
		x.step()
		x.finish(ids...)
		x.add(serve.Request{ID: 4, Prompt: 3})
		x.step()
		return s.Table(4, 0)
	}
	require.Equal(t, []int32{1, 2, 3}, free(1, 2, 3))
	require.Equal(t, []int32{1, 2, 3}, free(3, 1, 2))
}

// Each policy reserves blocks for a different number of tokens of a request. Ensure that Orca admits as many requests
// as fit into 983 blocks, the paper's memory, with these reservations.
func TestOrcaReservesWhatEachPolicySays(t *testing.T) {
	require.Equal(t, 161+338, Oracle.Tokens(161, 338, 2048))
	require.Equal(t, 161+512, Pow2.Tokens(161, 338, 2048))
	require.Equal(t, 1+1, Pow2.Tokens(1, 1, 2048))
	require.Equal(t, 2048, Max.Tokens(161, 338, 2048))
	for policy, batch := range map[Policy]int{Max: 7, Pow2: 15, Oracle: 30} {
		s, err := NewOrca(OrcaConfig{BlockSize: 16, NumGPUBlocks: 983, MaxModelLen: 2048, Policy: policy}, Limits{MaxNumBatchedTokens: 100000, MaxNumSeqs: 256})
		require.NoError(t, err)
		x := &script{t: t, s: s}
		for id := range 50 {
			x.add(serve.Request{ID: id, Prompt: 161, Output: 338})
		}
		x.step()
		require.Len(t, x.Prefills, batch)
		require.NoError(t, s.Check())
	}
}

// Ensure that no request joins a static batch. The requests of the batch are padded to one length.
func TestAStaticBatchIsAnsweredAsAWhole(t *testing.T) {
	s, err := NewStatic(StaticConfig{BatchSize: 3, MaxModelLen: 20})
	require.NoError(t, err)
	x := &script{t: t, s: s}
	x.add(serve.Request{ID: 1, Prompt: 4, Output: 2}, serve.Request{ID: 2, Prompt: 10, Output: 3}, serve.Request{ID: 3, Prompt: 1, Output: 11})
	x.expect(lengths{1: 10, 2: 10}, lengths{}) // 10 and 11 are too long together
	x.add(serve.Request{ID: 4, Prompt: 1, Output: 1})
	x.expect(lengths{}, lengths{1: 11, 2: 11})
	answered := x.finish(1)
	require.Empty(t, answered)
	_, err = s.Finish(nil, 1)
	require.ErrorIs(t, err, serve.ErrRequest)
	x.expect(lengths{}, lengths{1: 12, 2: 12}) // 1 is computed all the same
	answered = x.finish(2)
	require.Equal(t, []int{1, 2}, answered)
	x.expect(lengths{3: 1, 4: 1}, lengths{})
	require.NoError(t, s.Check())
	require.ErrorIs(t, s.Add(serve.Request{ID: 9, Prompt: 10, Output: 11}), serve.ErrRequest)
}

func TestOnlyRunningStaticRequestsHaveATable(t *testing.T) {
	s, err := NewStatic(StaticConfig{BatchSize: 2, MaxModelLen: 20})
	require.NoError(t, err)
	for id := range 3 {
		require.NoError(t, s.Add(serve.Request{ID: id, Prompt: 5, Output: 1 + id}))
	}
	var it serve.Iteration
	require.NoError(t, s.Step(&it))
	waiting, running, swapped := s.Queues()
	require.Equal(t, [][]int{{2}, {0, 1}, nil}, [][]int{waiting, running, swapped})
	require.Equal(t, []int32{0}, s.Table(0, 0))
	require.Equal(t, []int32{1}, s.Table(1, 0))
	require.Nil(t, s.Table(2, 0), "it waits")
	require.Nil(t, s.Table(1, 1), "it has one sequence")
	_, err = s.Finish(nil, 0)
	require.NoError(t, err)
	require.Equal(t, []int32{1}, s.Table(1, 0), "it keeps its place")
}
