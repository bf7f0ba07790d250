package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/engine/sampling"
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
	sampler  sampling.Sampler
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
		known.Tokens[p.Token] = q.launched[len(q.launched)-1].largest[p.Logits]
	}
	if err := q.Runner.Forward(&known); err != nil {
		return err
	}
	logits, err := q.Runner.ComputeLogits(&known, 0, min(len(b.Logits), MaxLogits))
	if err != nil {
		return err
	}
	states, err := q.Runner.ComputeStates(&known)
	q.launched = append(q.launched, launched{q.batches, slices.Clone(logits), slices.Clone(q.Runner.Largest()), slices.Clone(states)})
	return err
}

// Sample chooses tokens, and spoils the logits that are not asked for.
func (q *queue) Sample(choices []sampling.Choice) error {
	b := &q.launched[len(q.launched)-1]
	q.calls = append(q.calls, fmt.Sprint("choose ", b.batch))
	n := q.model.VocabSize
	for i, c := range choices {
		logits := b.logits[i*n:][:n]
		switch {
		case c.Params == nil:
			continue
		case c.Only >= 0:
			b.largest[i] = c.Only
		default:
			b.largest[i] = q.sampler.Sample(c.Params, c.State, logits)
		}
		if !c.Logits {
			clear(logits)
		}
	}
	return nil
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

// Ensure that the engine launches the next step before it waits for the results of a step whose tokens the device
// chooses. How they are chosen depends on the tokens of the step before, and is sent when these are known.
func TestADeviceHasTheNextStepBeforeItEndsOne(t *testing.T) {
	ahead := []string{"launch 1", "choose 1", "launch 2", "results 1", "choose 2", "launch 3", "results 2", "choose 3", "launch 4", "results 3",
		"choose 4", "results 4"}
	for name, change := range map[string]func(r *Request){
		"greedy":            func(*Request) {},
		"temperature":       func(r *Request) { r.Temperature, r.Seed = 2, 5 },
		"log probabilities": func(r *Request) { r.Temperature, r.Seed, r.Logprobs = 2, 6, 3 },
		"top-k and top-p":   func(r *Request) { r.Temperature, r.Seed, r.TopK, r.TopP, r.MinP = 2, 7, 40, 0.9, 0.01 },
		"penalties": func(r *Request) {
			r.Temperature, r.Seed, r.FrequencyPenalty, r.PresencePenalty, r.RepetitionPenalty = 1, 8, 2, 1, 0.5
		},
		"bias":       func(r *Request) { r.LogitBias = map[int32]float32{'x': 100} },
		"no end yet": func(r *Request) { r.MinTokens, r.StopTokenIDs = 4, []int32{' ', 'i'} },
		"a form":     func(r *Request) { r.Constraint, r.Temperature, r.Seed = compiled(t, "[0-9a-f ]{9}"), 1.5, 9 },
		"one token":  func(r *Request) { r.Constraint = compiled(t, "abcd") },
	} {
		t.Run(name, func(t *testing.T) {
			r := request(knowledge+"The code", 4)
			change(&r)
			e, q := startQueue(t)
			got := events(t, e, r)
			require.NoError(t, e.Close())
			require.Equal(t, ahead, q.calls)
			e, _ = startQueue(t, func(c *Config) { c.Device = nil })
			require.Equal(t, events(t, e, r), got, "on the CPU")
		})
	}
}

// Ensure that the engine only sends the inputs of the next step before a step ends if the device cannot choose its tokens.
func TestADeviceHasTheInputsOfTheNextStepBeforeItEndsOne(t *testing.T) {
	e, q := startQueue(t, func(c *Config) {
		c.Model.LogitScale = 1
		t.Cleanup(func() { c.Model.LogitScale = 0 }) // other tests have the same model
	})
	got, err := answer(t, ask(t, e, knowledge+"The code", 4))
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
	require.Equal(t, []string{"choose 3", "launch 4", "results 3", "results 4", "launch 5"}, q.calls[7:12])
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
	r := request(knowledge+"The code", 5)
	r.Constraint = compiled(t, " is [0-9]+")
	r.N = 2
	submitted, err := e.Submit(r)
	require.NoError(t, err)
	got, err := answer(t, submitted)
	require.NoError(t, err)
	require.Equal(t, "  iiss  77", got)
	require.Equal(t, 10, ready)
}

// compiled returns a constraint for answers that match a regular expression.
func compiled(t *testing.T, regex string) *structured.Constraint {
	t.Helper()
	all := make([][]byte, 256)
	for i := 4; i < 256; i++ {
		all[i] = []byte{byte(i)}
	}
	v, err := structured.NewVocabulary(all, nil, nil)
	require.NoError(t, err)
	c, err := structured.Compile(v, structured.Form{Regex: regex})
	require.NoError(t, err)
	return c
}

// events returns what a request is answered.
func events(t *testing.T, e *Engine, r Request) (all []Event) {
	t.Helper()
	s, err := e.Submit(r)
	require.NoError(t, err)
	for {
		some, err := s.Next(t.Context())
		require.NoError(t, err)
		if some == nil {
			return all
		}
		for _, event := range some {
			require.NoError(t, event.Err)
			event.Tokens = slices.Clone(event.Tokens)
			all = append(all, event)
		}
	}
}
