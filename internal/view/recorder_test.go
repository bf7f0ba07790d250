package view_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/scheduling/device"
	"llmmemory/internal/scheduling/paper"
	"llmmemory/internal/scheduling/serve"
	v0 "llmmemory/internal/scheduling/vllm/v0"
	"llmmemory/internal/testkit/servetest"
	"llmmemory/internal/view"
)

type watched struct {
	serve.Scheduler
	t         *rapid.T
	rec       *view.Recorder
	recording *view.Recording
	tabler    view.Tabler
	live      map[int]int // sequences, by request
	tokens    map[int]int // with a slot, of each request that has run
	now       float64
	copies    []device.Pair // of beams, since the last frame
	seen      []string      // the frames, as they were when they were new
}

func watch(t *rapid.T, s serve.Scheduler, tabler view.Tabler, r *view.Recording) *watched {
	rec, err := view.NewRecorder(r, s, view.Limits{Frames: math.MaxInt})
	require.NoError(t, err)
	require.Len(t, r.Frames, 1, "the empty pool")
	return &watched{Scheduler: s, t: t, rec: rec, recording: r, tabler: tabler, live: map[int]int{}, tokens: map[int]int{}}
}

func (w *watched) Add(r serve.Request) error {
	err := w.Scheduler.Add(r)
	if err == nil {
		w.live[r.ID] = max(1, r.Seqs)
	}
	return err
}

func (w *watched) Step(iter *serve.Iteration) error {
	stuck := w.Scheduler.Step(iter)
	for _, id := range iter.Ignored {
		delete(w.live, id)
	}
	for _, p := range iter.Prefills {
		w.tokens[p.ID] = p.Start + p.Tokens
	}
	for _, d := range iter.Decodes {
		w.tokens[d.ID] = d.Context
	}
	w.now++
	require.NoError(w.t, w.rec.Observe(w.now, iter))
	f := w.check()
	require.True(w.t, slices.Equal(iter.SwapIn, f.SwapIn) && slices.Equal(iter.SwapOut, f.SwapOut), "swaps")
	require.True(w.t, slices.Equal(append(w.copies, iter.Copies...), f.Copies), "copies, behind those of beams")
	w.copies = nil
	return stuck
}

func (w *watched) Finish(answered []int, ids ...int) ([]int, error) {
	before := len(answered)
	answered, err := w.Scheduler.Finish(answered, ids...)
	for _, id := range answered[before:] {
		delete(w.live, id)
		delete(w.tokens, id)
	}
	require.NoError(w.t, w.rec.Finished(w.now, answered[before:]...))
	if len(answered) > before {
		w.check()
		w.copies = nil
	}
	return answered, err
}

func (w *watched) check() *view.Frame {
	f := &w.recording.Frames[len(w.recording.Frames)-1]
	require.Equal(w.t, w.now, f.Now)
	require.NotEmpty(w.t, f.Said)
	waiting, running, swapped := w.tabler.Queues()
	require.Equal(w.t, [][]int{waiting, running, swapped}, [][]int{f.Waiting, f.Running, f.Swapped})
	var want []view.Sequence
	used, logical := map[int32]bool{}, 0
	for _, id := range slices.Sorted(maps.Keys(w.live)) {
		for k := range w.live[id] {
			table := w.tabler.Table(id, k)
			if len(table) == 0 {
				continue
			}
			cpu := slices.Contains(swapped, id)
			want = append(want, view.Sequence{Request: id, Number: k, CPU: cpu, Tokens: w.tokens[id], Table: slices.Clone(table)})
			if !cpu {
				logical += len(table)
				for _, b := range table {
					used[b] = true
				}
			}
		}
	}
	require.Equal(w.t, want, f.Sequences)
	held := 0
	for _, c := range f.Counts {
		if !c.CPU && !used[c.Block] && c.Count > 0 {
			held++
		}
	}
	usage := w.Usage()
	require.Equal(w.t, usage.Used, len(used)+held)
	require.Equal(w.t, usage.Logical, logical)
	for _, s := range f.Sequences {
		require.LessOrEqual(w.t, s.Tokens, len(s.Table)*w.recording.BlockSize, "a token has no slot")
	}
	w.seen = append(w.seen, fmt.Sprintf("%+v", *f))
	return f
}

// done checks that no frame has changed since it was recorded.
func (w *watched) done() {
	require.Len(w.t, w.recording.Frames, 1+len(w.seen))
	for i, first := range w.seen {
		require.Equal(w.t, first, fmt.Sprintf("%+v", w.recording.Frames[i+1]))
	}
}

func TestRecordsSOSP(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := paper.Config{
			BlockSize: rapid.IntRange(1, 5).Draw(t, "block"), NumGPUBlocks: rapid.IntRange(0, 24).Draw(t, "gpu"), NumCPUBlocks: rapid.IntRange(0, 30).Draw(t, "cpu"),
		}
		limits := paper.Limits{MaxNumBatchedTokens: rapid.IntRange(1, 60).Draw(t, "tokens"), MaxNumSeqs: rapid.IntRange(1, 8).Draw(t, "seqs")}
		s, err := paper.NewSOSP(config, limits, rapid.Bool().Draw(t, "always swap"))
		require.NoError(t, err)
		r := &view.Recording{BlockSize: config.BlockSize, NumGPUBlocks: config.NumGPUBlocks, NumCPUBlocks: config.NumCPUBlocks}
		w := watch(t, s, s, r)
		servetest.Run(t, &servetest.System{
			Scheduler: w, Check: s.Check, Table: s.Table, Refork: w.refork(s),
			BlockSize: config.BlockSize, Prompts: 40, Seqs: 3, Stuck: paper.ErrNoFreeBlocks, MaxTokens: limits.MaxNumBatchedTokens,
		})
		w.done()
	})
}

func (w *watched) refork(s *paper.Scheduler) func(it *serve.Iteration, id, child, parent int) error {
	return func(iter *serve.Iteration, id, child, parent int) error {
		err := s.Refork(iter, id, child, parent)
		if err == nil {
			w.rec.Reforked(id, child, parent, iter.Copies...)
			w.copies = append(w.copies, iter.Copies...)
		}
		return err
	}
}

type vllmV0 struct{ *v0.Scheduler }

func (s vllmV0) Table(id, sequence int) []int32 {
	table := slices.Clone(s.Scheduler.Table(id))
	for i := range table {
		if gpu := int32(s.Manager().View.Config().NumGPUBlocks); table[i] >= gpu {
			table[i] -= gpu
		}
	}
	return table
}

// Ensure that the reference count of each block can be computed from each frame. The block may be cached, outside a
// sliding window, or in no table.
func TestV0sFramesAreItsStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := v0.SchedulerConfig{
			Manager:             v0.Config{BlockSize: rapid.IntRange(1, 5).Draw(t, "block"), NumGPUBlocks: rapid.IntRange(0, 24).Draw(t, "gpu"), NumCPUBlocks: rapid.IntRange(0, 30).Draw(t, "cpu")},
			MaxNumBatchedTokens: rapid.IntRange(1, 60).Draw(t, "tokens"), MaxNumSeqs: rapid.IntRange(1, 8).Draw(t, "seqs"), MaxModelLen: 60,
		}
		shared := false
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			config.Manager.EnablePrefixCaching, shared = true, true
		case 1:
			config.Manager.SlidingWindow = rapid.IntRange(1, 12).Draw(t, "window")
		case 2:
			config.Mode = v0.Swap
		case 3:
			config.Chunked = true
		}
		s, err := v0.NewScheduler(config)
		require.NoError(t, err)
		r := &view.Recording{BlockSize: config.Manager.BlockSize, NumGPUBlocks: config.Manager.NumGPUBlocks, NumCPUBlocks: config.Manager.NumCPUBlocks}
		w := watch(t, s, vllmV0{s}, r)
		servetest.Run(t, &servetest.System{
			Scheduler: w, BlockSize: config.Manager.BlockSize, Prompts: 40, Shared: shared, Stuck: v0.ErrNoFreeBlocks,
			Window: config.Manager.SlidingWindow,
			Check: func() error {
				return errors.Join(s.Check(), counts(&r.Frames[len(r.Frames)-1], s))
			},
		})
		w.done()
	})
}

// counts returns an error if frame f and scheduler s differ in the reference counts of blocks or in the cached
// blocks. f.Counts must list a block only if its count differs from the number of entries with this block in the
// tables of f.
func counts(f *view.Frame, s *v0.Scheduler) error {
	gpu, cpu := s.Manager().View.Devices()
	for device, d := range []*device.Device{gpu, cpu} {
		named := make([]int32, len(d.Counts()))
		for _, q := range f.Sequences {
			for _, id := range q.Table {
				if q.CPU == (device == 1) {
					named[id]++
				}
			}
		}
		for _, c := range f.Counts {
			if c.CPU != (device == 1) {
				continue
			}
			if named[c.Block] == c.Count {
				return fmt.Errorf("device %d: the tables explain the count of block %d", device, c.Block)
			}
			named[c.Block] = c.Count
		}
		if !slices.Equal(named, d.Counts()) {
			return fmt.Errorf("device %d: frame: %v, counts: %v", device, named, d.Counts())
		}
	}
	var cached []int32
	for _, e := range s.Manager().View.Evictor() {
		cached = append(cached, e.ID)
	}
	if !slices.Equal(cached, f.Cached) {
		return fmt.Errorf("cached in the frame: %v, in the evictor: %v", f.Cached, cached)
	}
	return nil
}

func TestPrefixHitsAreTheBlocksThatWereFound(t *testing.T) {
	s, err := v0.NewScheduler(v0.SchedulerConfig{Manager: v0.Config{BlockSize: 4, NumGPUBlocks: 20, EnablePrefixCaching: true}, MaxNumBatchedTokens: 100, MaxNumSeqs: 4, MaxModelLen: 50})
	require.NoError(t, err)
	x := newTape(t, s, &view.Recording{BlockSize: 4, NumGPUBlocks: 20}, view.Limits{Frames: 10})
	x.add(serve.Request{ID: 0, Prompt: 10, Tokens: make([]int32, 12)})
	f := x.step()
	require.Empty(t, f.Hits)
	require.Equal(t, []string{"Admits request 0: 10 tokens of its prompt → blocks 0–2."}, f.Said)
	x.add(serve.Request{ID: 1, Prompt: 10, Tokens: make([]int32, 12)})
	f = x.step()
	require.Equal(t, []int32{0, 1}, f.Hits)
	require.Contains(t, f.Said, "Admits request 1: 10 tokens of its prompt → blocks 0, 1, 3; 8 tokens are in the cache already.")
	f = x.leave(0)
	require.Equal(t, []string{"Request 0 leaves after 10 tokens: 1 block free, 2 still shared."}, f.Said)
	require.Empty(t, f.Cached)
	f = x.leave(1)
	require.Equal(t, []string{"Request 1 leaves after 10 tokens: 3 blocks free."}, f.Said)
	require.Equal(t, []int32{0, 1}, slices.Sorted(slices.Values(f.Cached)))
}

func TestTheNullBlockIsHeldOnce(t *testing.T) {
	s, err := v0.NewScheduler(v0.SchedulerConfig{Manager: v0.Config{BlockSize: 2, NumGPUBlocks: 30, SlidingWindow: 2}, MaxNumBatchedTokens: 100, MaxNumSeqs: 4, MaxModelLen: 50})
	require.NoError(t, err)
	x := newTape(t, s, &view.Recording{BlockSize: 2, NumGPUBlocks: 30}, view.Limits{Frames: 20})
	x.add(serve.Request{ID: 0, Prompt: 20})
	for range 4 {
		require.NoError(t, counts(x.step(), s))
	}
	f := x.last()
	require.Len(t, f.Counts, 1)
	require.EqualValues(t, 1, f.Counts[0].Count)
	entries := slices.DeleteFunc(slices.Clone(f.Sequences[0].Table), func(id int32) bool { return id != f.Counts[0].Block })
	require.Greater(t, len(entries), 3)
}

// Ensure that the first frame is right although earlier steps were not recorded.
func TestARecordingBeginsAndEndsAtItsLimits(t *testing.T) {
	s, err := paper.NewSOSP(paper.Config{BlockSize: 4, NumGPUBlocks: 20, NumCPUBlocks: 8}, paper.Limits{MaxNumBatchedTokens: 100, MaxNumSeqs: 8}, false)
	require.NoError(t, err)
	r := &view.Recording{BlockSize: 4, NumGPUBlocks: 20, NumCPUBlocks: 8}
	x := newTape(t, s, r, view.Limits{From: 5, Frames: 3})
	x.add(serve.Request{ID: 7, Prompt: 6, Seqs: 2})
	for now := range 8 {
		require.NoError(t, x.scheduler.Step(&x.iter))
		require.NoError(t, x.rec.Observe(float64(now), &x.iter))
		require.Equal(t, now == 7, x.rec.Full())
	}
	require.ErrorIs(t, x.rec.Observe(8, &x.iter), view.ErrFull)
	require.Len(t, r.Frames, 3)
	require.EqualValues(t, 5, r.Frames[0].Now)
	require.Equal(t, "The recording begins here.", r.Frames[0].Said[0])
	require.Equal(t, 11, r.Frames[0].Sequences[0].Tokens)
	require.Equal(t, []int{0, 1}, []int{r.Frames[0].Sequences[0].Number, r.Frames[0].Sequences[1].Number})
}

type blind struct{ serve.Scheduler }

func TestWhatCannotBeRecordedIsRefused(t *testing.T) {
	s, err := paper.NewSOSP(paper.Config{BlockSize: 4, NumGPUBlocks: 10}, paper.Limits{MaxNumBatchedTokens: 100, MaxNumSeqs: 8}, true)
	require.NoError(t, err)
	_, err = view.NewRecorder(&view.Recording{BlockSize: 4, NumGPUBlocks: 10}, blind{s}, view.Limits{Frames: 1})
	require.ErrorIs(t, err, view.ErrRecording)
	require.ErrorContains(t, err, "does not show its block tables")
	_, err = view.NewRecorder(&view.Recording{BlockSize: 4, NumGPUBlocks: 1 << 20}, s, view.Limits{Frames: 1})
	require.ErrorContains(t, err, "record with fewer", "before anything is run")
}
