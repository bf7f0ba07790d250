package view_test

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/block"
	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/paper"
	"llmmemory/internal/scheduling/serve"
	v0 "llmmemory/internal/scheduling/vllm/v0"
	"llmmemory/internal/view"
)

type load struct {
	requests       int // at any time
	prompt, output int // tokens, the means
	seqs           int // of a request, at most
	sharedPrompt   int // tokens that the prompts of every third request share
}

func drive(t testing.TB, s serve.Scheduler, r *view.Recording, limits view.Limits, l load) *view.Recording {
	t.Helper()
	rec, err := view.NewRecorder(r, s, limits)
	require.NoError(t, err)
	rng := rand.New(rand.NewSource(3))
	left := map[int]int{} // tokens to generate, by request
	var iter serve.Iteration
	now := 0.0
	for next := 0; !rec.Full(); now += 0.03 {
		for len(left) < l.requests {
			prompt, output := 1+int(rng.ExpFloat64()*float64(l.prompt)), 1+int(rng.ExpFloat64()*float64(l.output))
			tokens := make([]int32, prompt+output)
			for i := range tokens {
				tokens[i] = int32(next)
				if i < l.sharedPrompt {
					tokens[i] = int32(-1 - next%3)
				}
			}
			if s.Add(serve.Request{ID: next, Prompt: prompt, Output: output, Seqs: 1 + rng.Intn(l.seqs), Tokens: tokens}) == nil {
				left[next] = output
			}
			next++
		}
		require.NoError(t, s.Step(&iter))
		require.NoError(t, rec.Observe(now, &iter))
		for _, id := range iter.Ignored {
			delete(left, id)
		}
		var done []int
		token := func(id int) {
			if left[id]--; left[id] == 0 {
				done = append(done, id)
			}
		}
		for _, p := range iter.Prefills {
			if p.Last {
				token(p.ID)
			}
		}
		for _, d := range iter.Decodes {
			token(d.ID)
		}
		answered, err := s.Finish(nil, done...)
		require.NoError(t, err)
		for _, id := range answered {
			delete(left, id)
		}
		require.NoError(t, rec.Finished(now, answered...))
	}
	return r
}

func sosp(t testing.TB, gpu, cpu int) serve.Scheduler {
	s, err := paper.NewSOSP(paper.Config{BlockSize: 16, NumGPUBlocks: gpu, NumCPUBlocks: cpu, Watermark: 0.01}, paper.Limits{MaxNumBatchedTokens: 2560, MaxNumSeqs: 256}, false)
	require.NoError(t, err)
	return s
}

func caching(t testing.TB, blocks int) serve.Scheduler {
	s, err := v0.NewScheduler(v0.SchedulerConfig{
		Manager: v0.Config{BlockSize: 16, NumGPUBlocks: blocks, Watermark: 0.01, EnablePrefixCaching: true}, MaxNumBatchedTokens: 2560, MaxNumSeqs: 256, MaxModelLen: 2048,
	})
	require.NoError(t, err)
	return s
}

// runs has a function for each kind of recording. Some recordings are as large as possible. Others are so small that
// each step can be checked.
var runs = map[string]func(t testing.TB) *view.Recording{
	"paged": func(t testing.TB) *view.Recording {
		r := &view.Recording{
			Title: "Paged memory under load", System: "vLLM (SOSP '23)",
			Note: "500 blocks of 16 tokens, requests about as long as ShareGPT's.", BlockSize: 16, NumGPUBlocks: 500, NumCPUBlocks: 100,
		}
		return drive(t, sosp(t, 500, 100), r, view.Limits{From: 10, Frames: 30}, load{20, 161, 337, 1, 0})
	},
	"static": func(t testing.TB) *view.Recording {
		s, err := paper.NewStatic(paper.StaticConfig{BatchSize: 5, MaxModelLen: 300})
		require.NoError(t, err)
		r := &view.Recording{Title: "Static batches", System: "FasterTransformer", Note: "A batch runs until its longest answer is complete.", BlockSize: 300, NumGPUBlocks: 5}
		return drive(t, s, r, view.Limits{Frames: 60}, load{8, 40, 20, 1, 0})
	},
	"swapped": func(t testing.TB) *view.Recording {
		r := &view.Recording{Title: "Parallel samples", System: "vLLM (SOSP '23)", Note: "Up to three samples of a prompt share its blocks.", BlockSize: 16, NumGPUBlocks: 60, NumCPUBlocks: 100}
		return drive(t, sosp(t, 60, 100), r, view.Limits{Frames: 80}, load{9, 50, 40, 3, 0})
	},
	"cached": func(t testing.TB) *view.Recording {
		r := &view.Recording{Title: "Prefix caching", System: "vLLM V0.6.4", Note: "Three prompts come again and again.", BlockSize: 16, NumGPUBlocks: 96}
		return drive(t, caching(t, 96), r, view.Limits{Frames: 70}, load{6, 100, 30, 1, 100})
	},
	"rare": func(testing.TB) *view.Recording {
		sequence := func(request, number, tokens int, cpu bool, table ...int32) view.Sequence {
			return view.Sequence{Request: request, Number: number, Tokens: tokens, CPU: cpu, Table: table}
		}
		return &view.Recording{Title: "What is rare", System: "made by hand", BlockSize: 4, NumGPUBlocks: 6, NumCPUBlocks: 2, Frames: []view.Frame{
			{Said: []string{"An old request is there."}, Blocks: 6, Running: []int{9}, Sequences: []view.Sequence{sequence(9, 0, 3, false, 5)}},
			{Said: []string{"One with a lower id comes, and is swapped out."}, Now: 1, Blocks: 6, Running: []int{9}, Swapped: []int{4}, Sequences: []view.Sequence{
				sequence(4, 0, 5, true, 1, 0), sequence(9, 0, 9, false, 5, block.None, 2),
			}, Counts: []view.Count{{Block: 3, Count: 1}}, Cached: []int32{0, 4}},
			{Said: []string{"It comes back with a second sequence, and a block is lost on the CPU."}, Now: 2, Blocks: 6, Running: []int{9, 4}, Sequences: []view.Sequence{
				sequence(4, 0, 5, false, 1, 0), sequence(4, 1, 5, false, 1, 4), sequence(9, 0, 12, false, 5, 3, 2),
			}, SwapIn: []device.Pair{{Src: 1, Dst: 1}, {Src: 0, Dst: 0}}, Counts: []view.Count{{CPU: true, Block: 0, Count: 1}}, Cached: []int32{}},
		}}
	},
	"large": func(t testing.TB) *view.Recording {
		r := &view.Recording{Title: "4,096 blocks", System: "vLLM (SOSP '23)", BlockSize: 16, NumGPUBlocks: 4096}
		return drive(t, sosp(t, 4096, 0), r, view.Limits{From: 6, Frames: 4}, load{200, 161, 337, 1, 0})
	},
}
