package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	kvevents "llmmemory/internal/scheduling/vllm/v1/pool"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/kvoffload"
	"llmmemory/internal/serving/model"
)

// A shelf keeps a model that an engine frees and loads. It counts both.
type shelf struct {
	model       *model.Model
	free, loads int
	failure     error
	unfreed     error         // of Free
	freeing     func()        // Free calls it; may be nil
	loading     chan struct{} // Load waits until it is closed; may be nil
	begun       chan struct{}
}

func (s *shelf) Free() error {
	s.free++
	if s.freeing != nil {
		s.freeing()
	}
	return s.unfreed
}

func (s *shelf) Load() ([]*model.Model, error) {
	s.loads++
	if s.loading != nil {
		close(s.begun)
		<-s.loading
	}
	return []*model.Model{s.model}, s.failure
}

func startSleeper(t *testing.T, change func(*engine.Config)) (*engine.Engine, *shelf) {
	s := &shelf{}
	return start(t, func(c *engine.Config) {
		s.model, c.Weights = c.Model, s
		if change != nil {
			change(c)
		}
	}), s
}

const question = "one two three four five six, one two three four"

func submit(t *testing.T, e *engine.Engine, maxTokens int) *engine.Stream {
	s, err := e.Submit(request(question, maxTokens))
	require.NoError(t, err)
	return s
}

// Ensure that an engine answers the same before and after it has slept, and that the prefix cache is empty then.
func TestAnAnswerAfterSleepIsTheSame(t *testing.T) {
	e, weights := startSleeper(t, nil)
	before := read(t, submit(t, e, 20), 1)
	warm := submit(t, e, 20)
	require.Equal(t, before, read(t, warm, 1))
	require.Positive(t, warm.CachedTokens())
	for range 2 {
		require.NoError(t, e.Sleep(t.Context()))
		asleep, loading := e.Asleep()
		require.Equal(t, []bool{true, false}, []bool{asleep, loading})
		require.NoError(t, e.Sleep(t.Context()), "again")
		require.Equal(t, weights.loads+1, weights.free)
		again := submit(t, e, 20)
		require.Equal(t, before, read(t, again, 1))
		require.Zero(t, again.CachedTokens())
		require.Equal(t, weights.loads, weights.free)
	}
	require.NoError(t, e.WakeUp(t.Context()), "it is awake")
	require.NoError(t, e.Sleep(t.Context()))
	require.NoError(t, e.WakeUp(t.Context()))
	asleep, _ := e.Asleep()
	require.False(t, asleep)
	require.Equal(t, 3, weights.loads)
}

// A drawer is a tier in memory.
type drawer struct {
	mu     sync.Mutex
	blocks map[blockhash.Hash][]byte
}

func (d *drawer) Count(_ context.Context, blocks []blockhash.Hash) (n int, _ error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for n < len(blocks) && d.blocks[blocks[n]] != nil {
		n++
	}
	return n, nil
}

func (d *drawer) Load(_ context.Context, blocks []blockhash.Hash, dst [][]byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, b := range blocks {
		copy(dst[i], d.blocks[b])
	}
	return len(blocks), nil
}

func (d *drawer) Store(_ context.Context, b blockhash.Hash, m kvoffload.Memory) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.blocks[b] = slices.Clone(m.Block())
	return nil
}

func (d *drawer) Close() error { return nil }

// clears is an EventPublisher that counts how often the prefix cache was cleared.
type clears int

func (*clears) SetGroups([]kvcache.Group) {}

func (c *clears) Publish(_ time.Time, events *kvevents.Events) error {
	for i := range events.List {
		if events.List[i].Kind == kvevents.Cleared {
			*c++
		}
	}
	return nil
}

// Ensure that after a sleep answers and vectors of each adapter are the same, their blocks are loaded from a tier, and
// events have said that the prefix cache is empty.
func TestAnEngineThatHasSleptFindsTheBlocksOfEachAdapterInATier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which time stands still, so that a load is never too slow
		var cleared clears
		e := startWorkers(t, 1, func(c *engine.Config) {
			c.Weights, c.KVEvents, c.Hash = &shelf{model: c.Model}, &cleared, blockhash.CBOR("0")
			c.Offload = &kvoffload.Config{Tier: &drawer{blocks: map[blockhash.Hash][]byte{}}, Stores: true, Loads: true}
		}, nil)
		prompt := strings.Repeat(story, 3)
		results := func() (all []any, cached []int) {
			for adapter := range 3 {
				r := request(prompt, 4)
				r.Adapter = adapter
				s, err := e.Submit(r)
				require.NoError(t, err)
				all, cached = append(all, read(t, s, 1)), append(cached, s.CachedTokens())
				r.Prompt, r.Pooling = tokens("Other words. "+prompt), pooling.Last
				s, err = e.Submit(r)
				require.NoError(t, err)
				all, cached = append(all, pooled(t, s)), append(cached, s.CachedTokens())
			}
			synctest.Wait() // blocks are stored
			return all, cached
		}
		want, cached := results()
		require.Equal(t, make([]int, 6), cached)
		require.NoError(t, e.Sleep(t.Context()))
		require.EqualValues(t, 1, cleared)
		got, cached := results()
		require.Equal(t, want, got)
		require.Equal(t, []int{144, 144, 144, 144, 144, 144}, cached, "whole blocks of the 147 and 160 tokens, the last of which is computed")
	})
}

// Ensure that requests that run or wait when the engine shall sleep are answered first, and those that come while the
// weights are loaded afterwards.
func TestNoRequestIsLostBySleep(t *testing.T) {
	e, weights := startSleeper(t, func(c *engine.Config) { c.MaxNumSeqs = 1 })
	streams := []*engine.Stream{submit(t, e, 300), submit(t, e, 3)}
	slept := make(chan error, 1)
	go func() { slept <- e.Sleep(context.Background()) }()
	for _, s := range streams {
		require.NoError(t, read(t, s, 1)[0].err)
	}
	require.NoError(t, <-slept)

	weights.loading, weights.begun = make(chan struct{}), make(chan struct{})
	streams = []*engine.Stream{submit(t, e, 3)}
	<-weights.begun
	asleep, loading := e.Asleep()
	require.Equal(t, []bool{true, true}, []bool{asleep, loading})
	require.Zero(t, e.SinceStep(), "loading is no step")
	streams = append(streams, submit(t, e, 4))
	gone := submit(t, e, 4)
	gone.Cancel()
	close(weights.loading)
	for _, s := range streams {
		require.NoError(t, read(t, s, 1)[0].err)
	}
}

// Ensure that a load that fails ends only the requests that wait for it, and that the next request tries again.
func TestALoadThatFailsIsTriedAgain(t *testing.T) {
	e, weights := startSleeper(t, nil)
	before := read(t, submit(t, e, 5), 1)
	require.NoError(t, e.Sleep(t.Context()))
	weights.failure = errors.New("no disk")
	for range 2 {
		got := read(t, submit(t, e, 5), 1)[0]
		var failure *engine.LoadError
		require.ErrorAs(t, got.err, &failure)
		require.ErrorIs(t, got.err, weights.failure)
	}
	require.ErrorIs(t, e.WakeUp(t.Context()), weights.failure)
	asleep, _ := e.Asleep()
	require.True(t, asleep)
	weights.failure = nil
	require.Equal(t, before, read(t, submit(t, e, 5), 1))
}

// Ensure that Sleep returns although a request wakes the engine up at once, and that one that gives up takes nothing from
// another.
func TestSleepReturnsIfARequestWakesTheEngineUpAtOnce(t *testing.T) {
	e, weights := startSleeper(t, nil)
	series, err := e.Series() // during which the engine does not sleep
	require.NoError(t, err)
	gone, leave := context.WithCancel(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	var waiting *engine.Stream
	weights.freeing = func() { waiting = submit(t, e, 5) }
	left, slept := make(chan error, 1), make(chan error, 1)
	go func() { left <- e.Sleep(gone) }()
	go func() { slept <- e.Sleep(ctx) }()
	engine.AwaitSleepers(e, 2)
	leave()
	require.ErrorIs(t, <-left, context.Canceled)
	require.NoError(t, e.WakeUp(t.Context()), "it is still awake")
	series.End()
	engine.AwaitSleepers(e, 0)
	require.NoError(t, read(t, waiting, 1)[0].err)
	cancel()
	require.NoError(t, <-slept)
	require.Equal(t, []int{1, 1}, []int{weights.free, weights.loads})
}

func TestSleepSaysThatTheWeightsCouldNotBeFreed(t *testing.T) {
	e, weights := startSleeper(t, nil)
	before := read(t, submit(t, e, 5), 1)
	weights.unfreed = errors.New("no munmap")
	for range 2 { // also while it sleeps
		require.ErrorIs(t, e.Sleep(t.Context()), weights.unfreed)
	}
	require.Equal(t, before, read(t, submit(t, e, 5), 1))
	weights.unfreed = nil
	require.NoError(t, e.Sleep(t.Context()))
}

// Ensure that an idle time lets the engine sleep, and that a request begins a new one.
func TestAnIdleEngineSleeps(t *testing.T) {
	timers := make(chan func(), 10)
	t.Cleanup(engine.SetAfter(func(d time.Duration, f func()) func() bool {
		if d == time.Minute {
			timers <- f
		}
		return func() bool { return true }
	}))
	e, weights := startSleeper(t, func(c *engine.Config) { c.IdleUnload = time.Minute })
	first := <-timers
	before := read(t, submit(t, e, 5), 1)
	second := <-timers
	first() // it was stopped too late
	require.Equal(t, before, read(t, submit(t, e, 5), 1))
	third := <-timers
	second()
	third()
	require.NoError(t, e.Sleep(t.Context()))
	require.Equal(t, 1, weights.free)
	require.Equal(t, before, read(t, submit(t, e, 5), 1))
	freed := make(chan struct{})
	weights.freeing = func() { close(freed) }
	(<-timers)()
	<-freed
	require.NoError(t, e.Sleep(t.Context()))
	require.Equal(t, 2, weights.free)
}

func TestAnEngineWithoutAWeightStoreDoesNotSleep(t *testing.T) {
	e := start(t, nil)
	require.ErrorIs(t, e.Sleep(t.Context()), engine.ErrNoSleep)
	require.NoError(t, e.WakeUp(t.Context()))
}

// Ensure that an engine that sleeps can be closed, and that WakeUp then returns ErrClosed.
func TestASleepingEngineCanBeClosed(t *testing.T) {
	e, _ := startSleeper(t, nil)
	require.NoError(t, e.Sleep(t.Context()))
	require.NoError(t, e.Close())
	require.ErrorIs(t, e.WakeUp(t.Context()), engine.ErrClosed)
}
