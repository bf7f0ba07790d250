package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/gpu"
	"llmmemory/internal/serving/kvstore"
	"llmmemory/internal/serving/model"
)

const blockSize = 16

func runnerConfig(g *gpu.Model, layers, blocks, sequences, tokens, longest int) (c engine.RunnerConfig, err error) {
	c = engine.RunnerConfig{Store: kvstore.Config{Layers: layers, NumBlocks: blocks}, MaxModelLen: longest, AskedModelLen: longest, MaxNumSeqs: sequences,
		MaxNumBatchedTokens: tokens}
	for i := range layers {
		c.Places = append(c.Places, model.Place{Layer: i})
	}
	c.Store.Shape, err = g.KVShape(blockSize)
	return c, err
}

// addSequence adds tokens of a sequence to a batch. start is the position of the first of these tokens. table is the
// block table of the sequence; stride is the length of a block table in the batch.
func addSequence(b *model.Batch, tokens []int32, start int, table []int32, stride int) {
	for i, token := range tokens {
		p := start + i
		b.Tokens, b.Positions = append(b.Tokens, token), append(b.Positions, int32(p))
		b.Slots = append(b.Slots, int64(table[p/blockSize])*blockSize+int64(p%blockSize))
	}
	if len(b.QueryStart) == 0 {
		b.QueryStart = append(b.QueryStart, 0)
	}
	b.QueryStart, b.SeqLens = append(b.QueryStart, int32(len(b.Tokens))), append(b.SeqLens, int32(start+len(tokens)))
	b.BlockTables, b.TableStride = append(append(b.BlockTables, table...), make([]int32, stride-len(table))...), stride
	b.Logits = append(b.Logits, int32(len(b.Tokens)-1))
}

// compute runs a step, and appends the most likely next token of each sequence to tokens. maxLogits is the
// highest number of rows of logits of one call.
func compute(r engine.DeviceRunner, maxLogits int, b *model.Batch, tokens []int32) ([]int32, error) {
	if err := launch(r, maxLogits, b); err != nil {
		return tokens, err
	}
	return take(r, maxLogits, b, tokens)
}

// launch begins a step whose tokens are those with the largest logits.
func launch(r engine.DeviceRunner, maxLogits int, b *model.Batch) error {
	if err := r.Forward(b); err != nil {
		return err
	}
	choices, greedy := make([]sampling.Choice, min(len(b.Logits), maxLogits)), sampling.Default()
	greedy.Temperature = 0
	for i := range choices {
		choices[i] = sampling.Choice{Params: &greedy, Only: -1}
	}
	return r.Sample(choices)
}

// take waits for the oldest step that was launched, and appends the most likely next token of each sequence
// to tokens.
func take(r engine.DeviceRunner, maxLogits int, b *model.Batch, tokens []int32) ([]int32, error) {
	for start := 0; start < len(b.Logits); start += maxLogits {
		if _, err := r.ComputeLogits(b, start, min(start+maxLogits, len(b.Logits))); err != nil {
			return tokens, err
		}
		tokens = append(tokens, r.Largest()...)
	}
	if slices.Contains(tokens, -1) {
		return tokens, errors.New("logits are not finite")
	}
	return tokens, nil
}

func (b *bench) decode() (err error) {
	s := llama(b.small)
	dir, err := b.folder("llama", s)
	if err != nil {
		return err
	}
	m, g, err := b.openModel(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	return errors.Join(b.decodeSteps(&s, m, g), b.idle(m, g))
}

// decodeSteps measures decoding steps of batches of several sizes. All sequences have the same tokens, in
// different blocks, so all must get the same next token.
func (b *bench) decodeSteps(s *shape, m *model.Model, g *gpu.Model) (err error) {
	counts, length := []int{1, 16, 64, 256}, b.pick(1024, 20)
	if b.small {
		counts = []int{1, 2, 3, 5}
	}
	perSequence := blocksFor(length)
	newRunner := func() (engine.DeviceRunner, engine.RunnerConfig, error) {
		largest := counts[len(counts)-1]
		c, err := runnerConfig(g, m.NumLayers, largest*perSequence, largest, length, length)
		if err != nil {
			return nil, c, err
		}
		r, err := g.NewRunner(c)
		return r, c, err
	}
	r, c, err := newRunner()
	for ; errors.Is(err, cuda.ErrOutOfMemory) && len(counts) > 1; r, c, err = newRunner() {
		fmt.Printf("decode step seqs=%-36d not measured: %v\n", counts[len(counts)-1], err)
		counts = counts[:len(counts)-1]
	}
	if err != nil {
		return err
	}
	largest := counts[len(counts)-1]
	defer func() { err = errors.Join(err, r.Close()) }()
	rnd := rand.New(rand.NewPCG(3, 4))
	tokens, table := randomTokens(rnd, length, m.VocabSize), make([]int32, largest*perSequence)
	for i, place := range rnd.Perm(len(table)) {
		table[i] = int32(place)
	}
	var prompt model.Batch
	addSequence(&prompt, tokens, 0, table[:perSequence], perSequence)
	want, err := compute(r, c.MaxLogits(), &prompt, nil)
	if err != nil {
		return err
	}
	var copies []kvstore.Pair
	for i := perSequence; i < len(table); i++ {
		copies = append(copies, kvstore.Pair{Src: table[i%perSequence], Dst: table[i]})
	}
	if err := r.CopyBlocks(copies); err != nil {
		return err
	}
	minimums := []float64{0.72, 0.72, 0.65, 0.5}
	unread := 2 * m.VocabSize * m.HiddenSize // the table of embeddings
	for i, n := range counts {
		var step model.Batch
		for k := range n {
			addSequence(&step, tokens[length-1:], length-1, table[k*perSequence:][:perSequence], perSequence)
		}
		seconds, got, err := b.timeOf(r, c.MaxLogits(), &step)
		if err != nil {
			return err
		}
		if slices.Contains(got, want[0]) && slices.Min(got) == slices.Max(got) {
			bytes := float64(g.Bytes()-unread) + float64(n*length*s.kvBytes)
			b.row(fmt.Sprintf("decode step seqs=%d tokens=%d", n, length), fmt.Sprintf("%.2f ms, %.0f GB/s", 1e3*seconds, bytes/seconds/1e9),
				bytes/seconds/b.copied, fmt.Sprintf("%.2f of copy", minimums[i]), minimums[i])
			continue
		}
		return fmt.Errorf("%d equal sequences get the tokens %v; one of them alone gets %d", n, got, want[0])
	}
	return nil
}

// timeOf returns the median time of a step in seconds, and the tokens of the last step. Each step is launched before
// the previous one ends, as in the engine.
func (b *bench) timeOf(r engine.DeviceRunner, maxLogits int, step *model.Batch) (seconds float64, tokens []int32, err error) {
	for range 3 { // kernels are compiled, the step is captured
		if tokens, err = compute(r, maxLogits, step, tokens[:0]); err != nil {
			return 0, nil, err
		}
	}
	if err := launch(r, maxLogits, step); err != nil {
		return 0, nil, err
	}
	var times []float64
	ended := time.Now()
	for range b.pick(30, 1) {
		if err := launch(r, maxLogits, step); err != nil {
			return 0, nil, err
		}
		if tokens, err = take(r, maxLogits, step, tokens[:0]); err != nil {
			return 0, nil, err
		}
		now := time.Now()
		times, ended = append(times, now.Sub(ended).Seconds()), now
	}
	slices.Sort(times)
	tokens, err = take(r, maxLogits, step, tokens[:0])
	return times[len(times)/2], tokens, err
}

func randomTokens(rnd *rand.Rand, n, vocabulary int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = rnd.Int32N(int32(vocabulary))
	}
	return tokens
}

// A watched device measures how long the GPU is idle between decoding steps of an engine. NewRunner sets runner,
// which does the measuring.
type watched struct {
	*gpu.Model
	sequences int // of the steps that count
	runner    *watchedRunner
}

func (w *watched) NewRunner(c engine.RunnerConfig) (engine.DeviceRunner, error) {
	r, err := w.Model.NewRunner(c)
	w.runner = &watchedRunner{DeviceRunner: r, sequences: w.sequences}
	return w.runner, err
}

// A watchedRunner measures two durations of each decoding step that computes one token of every sequence, except of the
// first step. It sums them over these steps.
//
// The field total is the sum of the times from the end of the previous step to the end of the step.
//
// The field idle is the sum of the longest times that the GPU can have been idle before the step:
//   - If no step was in flight at the launch of the step, this is the time from the end of the previous step to the
//     launch.
//   - If the previous step was in flight, and the runner then waited for its end (at least busyWait), this is 0: the
//     GPU was busy at the launch.
//   - If the previous step was in flight, but the runner did not have to wait for it, the previous step may have
//     ended at any time before the launch. Then this is the time from the end of the step before the previous step to
//     the launch.
type watchedRunner struct {
	engine.DeviceRunner
	sequences   int
	flights     []flight // launched, and not ended
	ended       time.Time
	steps       int
	idle, total time.Duration
}

type flight struct {
	counts   bool
	launched time.Time
	idle     time.Duration // before it
}

func (r *watchedRunner) Forward(b *model.Batch) error {
	return r.launched(b, r.DeviceRunner.Forward(b))
}

func (r *watchedRunner) ForwardPrepared(b *model.Batch) error {
	return r.launched(b, r.DeviceRunner.ForwardPrepared(b))
}

// launched notes that a step was launched, and returns err.
func (r *watchedRunner) launched(b *model.Batch, err error) error {
	f := flight{counts: len(b.Tokens) == r.sequences && len(b.SeqLens) == r.sequences && !r.ended.IsZero(), launched: time.Now()}
	if len(r.flights) == 0 {
		f.idle = f.launched.Sub(r.ended)
	}
	r.flights = append(r.flights, f)
	return err
}

// forget discards the measurements. No step is in flight.
func (r *watchedRunner) forget() { r.ended, r.steps, r.idle, r.total = time.Time{}, 0, 0, 0 }

// busyWait is the least duration of a call that counts as waiting for the GPU.
const busyWait = 50 * time.Microsecond

func (r *watchedRunner) ComputeLogits(b *model.Batch, start, end int) ([]float32, error) {
	begin := time.Now()
	logits, err := r.DeviceRunner.ComputeLogits(b, start, end)
	now := time.Now()
	if end < len(b.Logits) {
		return logits, err
	}
	f := r.flights[0]
	if r.flights = r.flights[1:]; len(r.flights) > 0 && now.Sub(begin) < busyWait {
		r.flights[0].idle = r.flights[0].launched.Sub(r.ended)
	}
	if f.counts {
		r.total += now.Sub(r.ended)
		r.idle += f.idle
		r.steps++
	}
	r.ended = now
	return logits, err
}

func (b *bench) idle(m *model.Model, g *gpu.Model) (err error) {
	n, length, answer := b.pick(64, 3), b.pick(256, 10), b.pick(128, 6)
	w := &watched{Model: g, sequences: n}
	e, err := b.engine(m, w, engine.Config{KVCacheBytes: int64(n+1) * int64(length+answer+blockSize) * int64(llama(b.small).kvBytes), MaxModelLen: length + answer,
		MaxNumSeqs: n, MaxNumBatchedTokens: b.pick(2048, 64)}, nil)
	if err != nil {
		return err
	}
	var requests []request
	for i := range n {
		requests = append(requests, request{randomTokens(rand.New(rand.NewPCG(5, uint64(i))), length, m.VocabSize), answer})
	}
	_, err = answers(e, requests, 1, time.Time{}) // kernels are compiled, the steps are captured
	r := w.runner
	r.forget()
	if err == nil {
		_, err = answers(e, requests, 1, time.Time{})
	}
	if err = errors.Join(err, e.Close()); err != nil {
		return err
	}
	if r.steps == 0 {
		return fmt.Errorf("no step of %d sequences", n)
	}
	share := float64(r.idle) / float64(r.total)
	b.row(fmt.Sprintf("GPU idle between steps=%d seqs=%d", r.steps, n), fmt.Sprintf("%.2f %% at most, %.3f ms a step", 100*share, 1e3*r.idle.Seconds()/float64(r.steps)),
		0.03/max(share, 1e-3), "at most 3 %", 1)
	return nil
}
