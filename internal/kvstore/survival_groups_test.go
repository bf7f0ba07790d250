package kvstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/attention"
	"llmmemory/internal/kvstore"
	"llmmemory/internal/paper"
	"llmmemory/internal/serve"
	"llmmemory/internal/testkit/servetest"
	"llmmemory/internal/vllm/device"
	"llmmemory/internal/vllm/v0"
)

// A worker runs a model for the schedulers that servetest drives. Tokens are given
// beforehand, so the logits of each are checked at once.
type worker struct {
	machine *machine
	dtype   attention.DType
	known   map[*servetest.Sequence][][]float32
	swaps   int
	copies  int
	said    func(q *servetest.Sequence, position int, logits []float32) error
}

func newWorker(m *transformer, d attention.DType, blockSize, gpu, cpu int) *worker {
	w := &worker{machine: newMachine(m, d, blockSize, gpu, cpu), dtype: d, known: map[*servetest.Sequence][][]float32{}}
	w.said = w.equal
	return w
}

// Apply implements servetest.Worker.
func (w *worker) Apply(it *serve.Iteration) {
	s := w.machine.store
	for _, move := range []struct {
		pairs []device.Pair
		do    func([]kvstore.Pair) error
		count *int
	}{{it.SwapOut, s.SwapOut, &w.swaps}, {it.SwapIn, s.SwapIn, &w.swaps}, {it.Copies, s.CopyBlocks, &w.copies}} {
		var pairs []kvstore.Pair
		for _, p := range move.pairs {
			pairs = append(pairs, kvstore.Pair{Src: p.Src, Dst: p.Dst})
		}
		if err := move.do(pairs); err != nil {
			panic(err)
		}
		*move.count += len(pairs)
	}
}

// Write implements servetest.Worker. With a window it computes token after token:
// V0's blocks of a window have no room for a long prompt at once.
func (w *worker) Write(table []int32, q *servetest.Sequence, start, end int) error {
	step := end - start
	if w.machine.model.windows[0] > 0 {
		step = 1
	}
	for at := start; at < end; at += step {
		if err := w.compute(table, q, at, at+step); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) compute(table []int32, q *servetest.Sequence, start, end int) error {
	size := w.machine.store.Config().BlockSize
	b := &batch{
		tokens: q.Tokens[start:end], starts: []int32{0, int32(end - start)}, lens: []int32{int32(end)},
		groups: []memory{{tables: table, stride: len(table)}}, groupOf: make([]int, w.machine.model.layers),
	}
	for p := start; p < end; p++ {
		b.positions = append(b.positions, int32(p))
		b.groups[0].slots = append(b.groups[0].slots, int64(table[p/size])*int64(size)+int64(p%size))
	}
	logits, err := w.machine.run(b)
	if err != nil {
		return err
	}
	for i, l := range logits {
		if err := w.said(q, start+i, l); err != nil {
			return err
		}
	}
	return nil
}

// equal compares with one pass over contiguous memory.
func (w *worker) equal(q *servetest.Sequence, position int, logits []float32) error {
	want := w.known[q]
	if want == nil {
		want = onePass(w.machine.model, w.dtype, q.Tokens)
		w.known[q] = want
	}
	for i := range logits {
		if logits[i] != want[position][i] {
			return fmt.Errorf("token %d, logit %d is %v, in one pass %v", position, i, logits[i], want[position][i])
		}
	}
	return nil
}

// Read implements servetest.Worker: attention has read already.
func (w *worker) Read([]int32, *servetest.Sequence, int, int) error { return nil }

// checkOf is a check of bookkeeping, or none if only the data counts.
func checkOf(check func() error) func() error {
	if dataOnly {
		return func() error { return nil }
	}
	return check
}

const longestGroup = 64

func TestEveryLogitSurvivesV0(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := randomTransformer(1, longestGroup)
		m := v0.Config{BlockSize: rapid.SampledFrom([]int{1, 3, 4, 8}).Draw(t, "block"),
			NumGPUBlocks: rapid.IntRange(4, 24).Draw(t, "gpu")}
		config := v0.SchedulerConfig{MaxNumSeqs: 5, MaxModelLen: 48, MaxNumBatchedTokens: rapid.IntRange(5, 40).Draw(t,
			"tokens")}
		switch rapid.SampledFrom([]string{"prefix", "window", "swap", "chunks"}).Draw(t, "kind") {
		case "prefix":
			m.EnablePrefixCaching = true
		case "window":
			m.SlidingWindow = rapid.IntRange(1, 12).Draw(t, "window")
			model.windows = []int{m.SlidingWindow, m.SlidingWindow}
		case "swap":
			m.NumCPUBlocks, config.Mode = rapid.IntRange(0, 16).Draw(t, "cpu"), v0.Swap
		case "chunks":
			config.Chunked = true
		}
		config.Manager = m
		s, err := v0.NewScheduler(config)
		require.NoError(t, err)
		w := newWorker(model, attention.F32, m.BlockSize, m.NumGPUBlocks, m.NumCPUBlocks)
		defer w.machine.close()
		servetest.Run(t, &servetest.System{
			Scheduler: s, Check: checkOf(s.Check), Table: func(id, _ int) []int32 { return s.Table(id) }, Worker: w,
			BlockSize: m.BlockSize, MaxTokens: config.MaxNumBatchedTokens, Prompts: 48, Stuck: v0.ErrNoFreeBlocks,
			Shared: m.EnablePrefixCaching, Window: m.SlidingWindow,
		})
	})
}

func TestEveryLogitSurvivesThePapersSystem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := randomTransformer(2, longestGroup)
		config := paper.Config{
			BlockSize:    rapid.SampledFrom([]int{1, 3, 4, 8}).Draw(t, "block"),
			NumGPUBlocks: rapid.IntRange(4, 24).Draw(t, "gpu"), NumCPUBlocks: rapid.IntRange(0, 30).Draw(t, "cpu"),
		}
		config.Prefix = rapid.IntRange(0, min(20, config.NumGPUBlocks*config.BlockSize)).Draw(t, "prefix")
		limits := paper.Limits{MaxNumBatchedTokens: rapid.IntRange(5, 60).Draw(t, "tokens"),
			MaxNumSeqs: rapid.IntRange(1, 8).Draw(t, "seqs")}
		s, err := paper.NewSOSP(config, limits, rapid.Bool().Draw(t, "always swap"))
		require.NoError(t, err)
		w := newWorker(model, attention.F16, config.BlockSize, config.NumGPUBlocks, config.NumCPUBlocks)
		defer w.machine.close()
		servetest.Run(t, &servetest.System{
			Scheduler: s, Check: checkOf(s.Check), Table: s.Table, Refork: s.Refork, Worker: w,
			BlockSize: config.BlockSize, Prompts: 40, Seqs: 3, Stuck: paper.ErrNoFreeBlocks,
			MaxTokens: limits.MaxNumBatchedTokens, Prefix: s.Prefix(),
		})
	})
}

func TestEveryLogitSurvivesOrca(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := randomTransformer(3, longestGroup)
		config := paper.OrcaConfig{BlockSize: 4, MaxModelLen: 64, NumGPUBlocks: rapid.IntRange(16, 70).Draw(t, "blocks")}
		limits := paper.Limits{MaxNumBatchedTokens: 60, MaxNumSeqs: 6}
		s, err := paper.NewOrca(config, limits)
		require.NoError(t, err)
		w := newWorker(model, attention.F32, 4, config.NumGPUBlocks, 0)
		defer w.machine.close()
		servetest.Run(t, &servetest.System{
			Scheduler: s, Check: checkOf(s.Check), Refork: s.Refork, Table: s.Table, Worker: w,
			BlockSize: 4, Prompts: 40, Seqs: 3, MaxTokens: limits.MaxNumBatchedTokens,
		})
	})
}

// The answer is known beforehand: V0 and the paper's system swap under a model
// that recalls what stood in the prompt.
func TestWhatStoodInThePromptIsRecalledAfterSwapping(t *testing.T) {
	const blockSize, gpu, cpu = 16, 24, 60
	for _, c := range []struct {
		name string
		make func() (serve.Scheduler, func(id, seq int) []int32, error)
	}{
		{"v0", func() (serve.Scheduler, func(id, seq int) []int32, error) {
			s, err := v0.NewScheduler(v0.SchedulerConfig{
				Manager:    v0.Config{BlockSize: blockSize, NumGPUBlocks: gpu, NumCPUBlocks: cpu},
				MaxNumSeqs: 6, MaxModelLen: 256, MaxNumBatchedTokens: 256, Mode: v0.Swap,
			})
			return s, func(id, _ int) []int32 { return s.Table(id) }, err
		}},
		{"the paper's system", func() (serve.Scheduler, func(id, seq int) []int32, error) {
			s, err := paper.NewSOSP(paper.Config{BlockSize: blockSize, NumGPUBlocks: gpu, NumCPUBlocks: cpu},
				paper.Limits{MaxNumBatchedTokens: 256, MaxNumSeqs: 6}, true)
			return s, s.Table, err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, table, err := c.make()
			require.NoError(t, err)
			w := newWorker(recallTransformer(256), attention.F16, blockSize, gpu, cpu)
			defer w.machine.close()
			recallSwapped(t, s, table, w)
			require.Positive(t, w.swaps)
		})
	}
}

// A recalling request has a prompt and the answer that is known beforehand.
type recalling struct {
	*servetest.Sequence
	prompt, length int
}

func newRecalling(r *rand.Rand, common []int, answer int) *recalling {
	tokens := recallPrompt(r, common, 20+r.IntN(80))
	prompt := len(tokens)
	next := map[int32]int32{}
	for i := range prompt - 1 {
		next[tokens[i]] = tokens[i+1]
	}
	for range answer {
		tokens = append(tokens, next[tokens[len(tokens)-1]])
	}
	return &recalling{&servetest.Sequence{Tokens: tokens}, prompt, prompt}
}

// recallSwapped serves requests whose answers are known.
func recallSwapped(t *testing.T, s serve.Scheduler, table func(id, seq int) []int32, w *worker) {
	r := rand.New(rand.NewPCG(8, 8))
	common := r.Perm(256)
	requests := map[int]*recalling{}
	recalled := 0
	w.said = func(q *servetest.Sequence, position int, logits []float32) error {
		for _, l := range requests {
			if l.Sequence == q && position >= l.prompt-1 && position+1 < len(q.Tokens) {
				if got := most(logits); got != q.Tokens[position+1] {
					return fmt.Errorf("after token %d of a prompt of %d the model says %d, not %d", position, l.prompt, got,
						q.Tokens[position+1])
				}
				recalled++
			}
		}
		return nil
	}
	for id := range 30 {
		requests[id] = newRecalling(r, common, 50)
		require.NoError(t, s.Add(serve.Request{ID: id, Prompt: requests[id].prompt, Output: 50, Seqs: 1}))
	}
	var it serve.Iteration
	for steps := 0; len(requests) > 0 && steps < 5000; steps++ {
		require.NoError(t, s.Step(&it))
		w.Apply(&it)
		var done []int
		token := func(id int) {
			requests[id].length++
			if requests[id].length >= len(requests[id].Tokens) {
				done = append(done, id)
			}
		}
		for _, p := range it.Prefills {
			require.NoError(t, w.Write(table(p.ID, 0), requests[p.ID].Sequence, p.Start+p.Cached, p.Start+p.Tokens))
			if p.Last {
				token(p.ID)
			}
		}
		for _, d := range it.Decodes {
			q := requests[d.ID]
			require.NoError(t, w.Write(table(d.ID, 0), q.Sequence, q.length-1, q.length))
			token(d.ID)
		}
		answered, err := s.Finish(nil, done...)
		require.NoError(t, err)
		for _, id := range answered {
			delete(requests, id)
		}
	}
	require.Empty(t, requests)
	require.Greater(t, recalled, 1000)
	t.Logf("%d tokens recalled, %d blocks swapped", recalled, w.swaps)
}
