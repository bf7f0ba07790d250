package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/serving/structured"
)

// A queue is a Device, and also its runner. It computes batches on the CPU and records the order of the calls.
type queue struct {
	cpuRunner
	model   *model.Model
	pool    *parallel.Pool
	calls   []string
	batches int
	results func(batch int) error

	launched []launched
	last     []int32 // the tokens with the largest logits of the last batch
	taken    launched
}

type launched struct {
	batch   int
	logits  []float32
	largest []int32
	states  []float32
}

func (q *queue) KVShape(blockSize int) (attention.Shape, error) {
	return q.model.KVShape(blockSize, attention.F32), nil
}

func (q *queue) NewRunner(c RunnerConfig) (DeviceRunner, error) {
	var err error
	if q.Store, err = kvstore.New(c.Store, q.pool); err != nil {
		return nil, err
	}
	q.Runner, err = model.NewRunner(q.model, q.Store, q.pool, nil, c.Places...)
	return q, err
}

func (q *queue) Prepare(*model.Batch) { q.calls = append(q.calls, fmt.Sprint("prepare ", q.batches+1)) }

func (q *queue) ForwardPrepared(b *model.Batch) error { return q.Forward(b) }

func (q *queue) Forward(b *model.Batch) error {
	q.batches++
	q.calls = append(q.calls, fmt.Sprint("launch ", q.batches))
	known := *b
	known.Tokens = slices.Clone(b.Tokens)
	for _, p := range b.Placeholders {
		known.Tokens[p.Token] = q.last[p.Logits]
	}
	if err := q.Runner.Forward(&known); err != nil {
		return err
	}
	logits, err := q.Runner.ComputeLogits(&known, 0, min(len(b.Logits), MaxLogits))
	q.last = slices.Clone(q.Runner.Largest())
	if err != nil {
		return err
	}
	states, err := q.Runner.ComputeStates(&known)
	q.launched = append(q.launched, launched{q.batches, slices.Clone(logits), q.last, slices.Clone(states)})
	return err
}

func (q *queue) ComputeStates(*model.Batch) ([]float32, error) { return q.taken.states, nil }

func (q *queue) ComputeLogits(_ *model.Batch, start, _ int) ([]float32, error) {
	if start > 0 {
		return nil, fmt.Errorf("%w: too many logits", model.ErrBatch)
	}
	q.taken = q.launched[0]
	q.launched = q.launched[1:]
	q.calls = append(q.calls, fmt.Sprint("results ", q.taken.batch))
	if q.results == nil {
		return q.taken.logits, nil
	}
	return q.taken.logits, q.results(q.taken.batch)
}

func (q *queue) Largest() []int32 { return q.taken.largest }

// startQueue starts an engine whose Device is a queue.
func startQueue(t *testing.T, changes ...func(*Config)) (*Engine, *queue) {
	pool, err := parallel.New(1)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	m, err := HandBuilt()
	require.NoError(t, err)
	q := &queue{model: m, pool: pool}
	c := Config{Model: m, Tokenizer: induction.Tokenizer(), Pool: pool, KVCacheBytes: 8 << 20, MaxModelLen: 200, Device: q}
	for _, change := range changes {
		change(&c)
	}
	e, err := New(c, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e, q
}

// Ensure that if the device chooses the tokens of a step, the engine launches the next step before it waits for the
// results. If the device does not choose them, the engine sends only the inputs of the next step before it waits.
func TestADeviceHasTheNextStepBeforeItEndsOne(t *testing.T) {
	e, q := startQueue(t)
	got, err := answer(t, ask(t, e, knowledge+"The code", 4))
	require.NoError(t, err)
	require.Equal(t, " is ", got)
	require.NoError(t, e.Close())
	require.Equal(t, []string{"launch 1", "launch 2", "results 1", "launch 3", "results 2", "launch 4", "results 3", "results 4"}, q.calls)

	e, q = startQueue(t)
	sampled := request(knowledge+"The code", 4)
	sampled.Temperature = 0.01
	s, err := e.Submit(sampled)
	require.NoError(t, err)
	got, err = answer(t, s)
	require.NoError(t, err)
	require.Equal(t, " is ", got)
	require.NoError(t, e.Close())
	require.Equal(t, []string{"launch 1", "prepare 2", "results 1", "launch 2", "prepare 3", "results 2", "launch 3", "prepare 4", "results 3",
		"launch 4", "results 4"}, q.calls)
}

// Ensure that a device has the next step before it ends one that computes states of a prompt, unless the step has more
// states than are computed with the layers.
func TestADeviceHasTheNextStepBeforeItEndsAVector(t *testing.T) {
	vectorOf := func(kind pooling.Type, tokensOfStep int) ([]float32, []string) {
		e, q := startQueue(t, func(c *Config) { c.MaxNumBatchedTokens = tokensOfStep })
		s, err := e.Submit(Request{Prompt: request(strings.Repeat(knowledge, 20), 1).Prompt[:160], Pooling: kind})
		require.NoError(t, err)
		events, err := s.Next(t.Context())
		require.NoError(t, err)
		require.NoError(t, events[0].Err)
		require.NoError(t, e.Close())
		return events[0].Pooled, q.calls
	}
	wantLast, _ := vectorOf(pooling.Last, 200)
	wantMean, _ := vectorOf(pooling.Mean, 200)
	ahead := []string{"launch 1", "launch 2", "results 1", "launch 3", "results 2", "results 3"}

	got, calls := vectorOf(pooling.Last, 64)
	require.Equal(t, wantLast, got)
	require.Equal(t, ahead, calls)
	got, calls = vectorOf(pooling.Mean, 64)
	require.Equal(t, wantMean, got)
	require.Equal(t, ahead, calls)
	got, calls = vectorOf(pooling.Mean, 80)
	require.Equal(t, wantMean, got)
	require.Equal(t, []string{"launch 1", "results 1", "launch 2", "results 2"}, calls)
}

// Ensure that if a batch fails when the engine waits for its results, the next step has no effect. It is already
// launched at that time.
func TestAFailedBatchOfADeviceVoidsTheNextOne(t *testing.T) {
	e, q := startQueue(t)
	q.results = func(batch int) error {
		if batch == 3 {
			return fmt.Errorf("%w: broken", model.ErrBatch)
		}
		return nil
	}
	got, err := answer(t, ask(t, e, knowledge+"The code", 11))
	require.ErrorIs(t, err, model.ErrBatch)
	require.Equal(t, " i", got)
	requireDrained(t, e)
	got, err = answer(t, ask(t, e, knowledge+"The code", 11))
	require.NoError(t, err)
	require.Equal(t, " is 7Kx-31.", got)
	require.NoError(t, e.Close())
	require.Equal(t, []string{"launch 4", "results 3", "results 4", "launch 5"}, q.calls[5:9])
	require.Empty(t, q.launched)
}

// Ensure that the masks of constrained answers are computed while the device computes.
func TestMasksAreReadyBeforeADeviceEndsAStep(t *testing.T) {
	e, q := startQueue(t)
	ready := 0
	q.results = func(int) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		var s *Stream
		for _, live := range e.live {
			s = live.stream
		}
		for _, a := range s.answers {
			if a.masked == len(a.output())+1 {
				ready++
			}
		}
		return nil
	}
	all := make([][]byte, 256)
	for i := 4; i < 256; i++ {
		all[i] = []byte{byte(i)}
	}
	v, err := structured.NewVocabulary(all, nil, nil)
	require.NoError(t, err)
	r := request(knowledge+"The code", 5)
	r.Constraint, err = structured.Compile(v, structured.Form{Regex: " is [0-9]+"})
	require.NoError(t, err)
	r.N = 2
	submitted, err := e.Submit(r)
	require.NoError(t, err)
	got, err := answer(t, submitted)
	require.NoError(t, err)
	require.Equal(t, "  iiss  77", got)
	require.Equal(t, 10, ready)
}
