package kvstore_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/paper"
	"llmmemory/internal/scheduling/serve"
	"llmmemory/internal/scheduling/vllm/v0"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/testkit/servetest"
)

// A worker runs a model for the schedulers that servetest drives. Tokens are given
// beforehand, so the logits of each are checked at once.
type worker struct {
	machine *machine
	dtype   attention.DType
	known   map[*servetest.Sequence][][]float32
}

func newWorker(m *transformer, d attention.DType, blockSize, gpu, cpu int) *worker {
	return &worker{machine: newMachine(m, d, blockSize, gpu, cpu), dtype: d, known: map[*servetest.Sequence][][]float32{}}
}

// Apply implements servetest.Worker.
func (w *worker) Apply(it *serve.Iteration) {
	s := w.machine.store
	for _, move := range []struct {
		pairs []device.Pair
		do    func([]kvstore.Pair) error
	}{{it.SwapOut, s.SwapOut}, {it.SwapIn, s.SwapIn}, {it.Copies, s.CopyBlocks}} {
		var pairs []kvstore.Pair
		for _, p := range move.pairs {
			pairs = append(pairs, kvstore.Pair{Src: p.Src, Dst: p.Dst})
		}
		if err := move.do(pairs); err != nil {
			panic(err)
		}
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
		if err := w.equal(q, start+i, l); err != nil {
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
