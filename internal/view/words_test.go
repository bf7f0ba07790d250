package view_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/paper"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/view"
)

func TestEventsAreDescribed(t *testing.T) {
	s, err := paper.NewSOSP(paper.Config{BlockSize: 4, NumGPUBlocks: 10, NumCPUBlocks: 20}, paper.Limits{MaxNumBatchedTokens: 100, MaxNumSeqs: 8}, false)
	require.NoError(t, err)
	r := &view.Recording{BlockSize: 4, NumGPUBlocks: 10, NumCPUBlocks: 20}
	rec, err := view.NewRecorder(r, s, view.Limits{Frames: 100})
	require.NoError(t, err)
	var it serve.Iteration
	now := 0.0
	step := func() []string {
		now++
		require.NoError(t, s.Step(&it))
		require.NoError(t, rec.Observe(now, &it))
		return r.Frames[len(r.Frames)-1].Said
	}
	require.Equal(t, []string{"The pool is empty."}, r.Frames[0].Said)
	require.NoError(t, s.Add(serve.Request{ID: 7, Prompt: 6, Seqs: 2}))
	require.Equal(t, []string{"Admits request 7: 6 tokens of its prompt, 2 sequences → blocks 9, 8."}, step())
	require.Equal(t, []string{
		"Request 7a writes token 6 into block 8, which is shared: copy-on-write 8 → 7.",
		"Request 7 writes a token for each of 2 sequences.",
	}, step())
	require.NoError(t, s.Add(serve.Request{ID: 8, Prompt: 20}))
	require.Equal(t, []string{"Admits request 8: 20 tokens of its prompt → blocks 6–2.", "Request 7 writes a token for each of 2 sequences."}, step())
	require.Equal(t, []string{
		"Preempts request 8 (recompute): 5 blocks free.",
		"Request 7 writes a token for each of 2 sequences; 2 blocks are begun: 1 (request 7a), 0 (request 7b).",
	}, step())
	answered, err := s.Finish(nil, 7)
	require.NoError(t, err)
	require.NoError(t, rec.Finished(now, answered...))
	require.Equal(t, []string{"Request 7 leaves after 9 tokens: 5 blocks free."}, r.Frames[len(r.Frames)-1].Said)
	require.Contains(t, step()[0], "Admits request 8 again, 21 tokens to compute anew → blocks ")
	require.Equal(t, "Request 8 writes a token.", step()[0])

	o, err := paper.NewOrca(paper.OrcaConfig{BlockSize: 4, NumGPUBlocks: 32, MaxModelLen: 64, Policy: paper.Max}, paper.Limits{MaxNumBatchedTokens: 100, MaxNumSeqs: 8})
	require.NoError(t, err)
	reserved := &view.Recording{BlockSize: 4, NumGPUBlocks: 32}
	rec, err = view.NewRecorder(reserved, o, view.Limits{Frames: 100})
	require.NoError(t, err)
	require.NoError(t, o.Add(serve.Request{ID: 1, Prompt: 6, Output: 2}))
	require.NoError(t, o.Step(&it))
	require.NoError(t, rec.Observe(1, &it))
	require.Equal(t, []string{"Admits request 1: 6 tokens of its prompt → blocks 16–31 (16 reserved, 2 needed now)."}, reserved.Frames[1].Said)
}

func TestSwapsAreDescribed(t *testing.T) {
	s, err := paper.NewSOSP(paper.Config{BlockSize: 4, NumGPUBlocks: 10, NumCPUBlocks: 20}, paper.Limits{MaxNumBatchedTokens: 100, MaxNumSeqs: 8}, true)
	require.NoError(t, err)
	r := &view.Recording{BlockSize: 4, NumGPUBlocks: 10, NumCPUBlocks: 20}
	rec, err := view.NewRecorder(r, s, view.Limits{Frames: 100})
	require.NoError(t, err)
	for id := range 2 {
		require.NoError(t, s.Add(serve.Request{ID: id, Prompt: 20}))
	}
	var it serve.Iteration
	step := func(now float64) *view.Frame {
		require.NoError(t, s.Step(&it))
		require.NoError(t, rec.Observe(now, &it))
		return &r.Frames[len(r.Frames)-1]
	}
	step(1)
	f := step(2)
	require.Contains(t, f.Said[0], "Preempts request 1 (swap): its 5 blocks go to blocks ")
	require.Len(t, f.SwapOut, 5)
	require.True(t, f.Sequences[1].CPU)
	_, err = s.Finish(nil, 0)
	require.NoError(t, err)
	require.NoError(t, rec.Finished(2, 0))
	f = step(3)
	require.Contains(t, f.Said[0], "Swaps request 1 in: its 5 blocks go to blocks ")
	require.False(t, f.Sequences[0].CPU)
}
