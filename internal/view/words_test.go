package view_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/paper"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/view"
)

type tape struct {
	*testing.T
	scheduler serve.Scheduler
	recording *view.Recording
	rec       *view.Recorder
	iter      serve.Iteration
	now       float64
}

func newTape(t *testing.T, s serve.Scheduler, r *view.Recording, limits view.Limits) *tape {
	t.Helper()
	rec, err := view.NewRecorder(r, s, limits)
	require.NoError(t, err)
	return &tape{T: t, scheduler: s, recording: r, rec: rec}
}

func (x *tape) add(r serve.Request) { require.NoError(x, x.scheduler.Add(r)) }

func (x *tape) last() *view.Frame { return &x.recording.Frames[len(x.recording.Frames)-1] }

func (x *tape) step() *view.Frame {
	require.NoError(x, x.scheduler.Step(&x.iter))
	require.NoError(x, x.rec.Observe(x.now, &x.iter))
	x.now++
	return x.last()
}

func (x *tape) leave(ids ...int) *view.Frame {
	answered, err := x.scheduler.Finish(nil, ids...)
	require.NoError(x, err)
	require.NoError(x, x.rec.Finished(x.now, answered...))
	return x.last()
}

func small(t *testing.T, swap bool) *tape {
	t.Helper()
	s, err := paper.NewSOSP(paper.Config{BlockSize: 4, NumGPUBlocks: 10, NumCPUBlocks: 20}, paper.Limits{MaxNumBatchedTokens: 100, MaxNumSeqs: 8}, swap)
	require.NoError(t, err)
	return newTape(t, s, &view.Recording{BlockSize: 4, NumGPUBlocks: 10, NumCPUBlocks: 20}, view.Limits{Frames: 100})
}

func TestEventsAreDescribed(t *testing.T) {
	x := small(t, false)
	require.Equal(t, []string{"The pool is empty."}, x.last().Said)
	x.add(serve.Request{ID: 7, Prompt: 6, Seqs: 2})
	require.Equal(t, []string{"Admits request 7: 6 tokens of its prompt, 2 sequences → blocks 9, 8."}, x.step().Said)
	require.Equal(t, []string{
		"Request 7a writes token 6 into block 8, which is shared: copy-on-write 8 → 7.",
		"Request 7 writes a token for each of 2 sequences.",
	}, x.step().Said)
	x.add(serve.Request{ID: 8, Prompt: 20})
	require.Equal(t, []string{"Admits request 8: 20 tokens of its prompt → blocks 6–2.", "Request 7 writes a token for each of 2 sequences."}, x.step().Said)
	require.Equal(t, []string{
		"Preempts request 8 (recompute): 5 blocks free.",
		"Request 7 writes a token for each of 2 sequences; 2 blocks are begun: 1 (request 7a), 0 (request 7b).",
	}, x.step().Said)
	require.Equal(t, []string{"Request 7 leaves after 9 tokens: 5 blocks free."}, x.leave(7).Said)
	require.Contains(t, x.step().Said[0], "Admits request 8 again, 21 tokens to compute anew → blocks ")
	require.Equal(t, "Request 8 writes a token.", x.step().Said[0])

	o, err := paper.NewOrca(paper.OrcaConfig{BlockSize: 4, NumGPUBlocks: 32, MaxModelLen: 64, Policy: paper.Max}, paper.Limits{MaxNumBatchedTokens: 100, MaxNumSeqs: 8})
	require.NoError(t, err)
	x = newTape(t, o, &view.Recording{BlockSize: 4, NumGPUBlocks: 32}, view.Limits{Frames: 100})
	x.add(serve.Request{ID: 1, Prompt: 6, Output: 2})
	require.Equal(t, []string{"Admits request 1: 6 tokens of its prompt → blocks 16–31 (16 reserved, 2 needed now)."}, x.step().Said)
}

func TestSwapsAreDescribed(t *testing.T) {
	x := small(t, true)
	for id := range 2 {
		x.add(serve.Request{ID: id, Prompt: 20})
	}
	x.step()
	f := x.step()
	require.Contains(t, f.Said[0], "Preempts request 1 (swap): its 5 blocks go to blocks ")
	require.Len(t, f.SwapOut, 5)
	require.True(t, f.Sequences[1].CPU)
	x.leave(0)
	f = x.step()
	require.Contains(t, f.Said[0], "Swaps request 1 in: its 5 blocks go to blocks ")
	require.False(t, f.Sequences[0].CPU)
}
