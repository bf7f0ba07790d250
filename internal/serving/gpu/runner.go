package gpu

import (
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model"
)

// KVShape returns the shape of the keys and values of one layer. It implements engine.Device.
func (m *Model) KVShape(blockSize int) (attention.Shape, error) {
	if blockSize%kernels.BlockUnit != 0 {
		return attention.Shape{}, unsupported("blocks have %d tokens; the number must be a multiple of %d", blockSize, kernels.BlockUnit)
	}
	s := attention.Shape{BlockSize: blockSize, NumKVHeads: m.NumKVHeads, HeadSize: m.size, DType: attention.F16}
	switch {
	case m.cacheType == kernels.CacheE4M3:
		s.DType = attention.E4M3
	case m.cacheType == kernels.CacheE5M2:
		s.DType = attention.E5M2
	case m.kind == kernels.BF16:
		s.DType = attention.BF16
	}
	return s, nil
}

// A Runner is the engine.DeviceRunner of a GPU.
type Runner struct {
	*Model
	config engine.RunnerConfig
	*blocks

	x, normed, qkv, attended, sums, upOut, act cuda.Pointer // [tokens][...], in the activations' type
	picked                                     *cuda.Memory // the rows of x whose logits or states are computed
	results                                    results
	flights                                    [2]flight
	launched                                   []*flight // of batches whose results were not taken, the oldest first
	taken                                      *flight   // the last one that was taken
	prepared                                   prepared
	scratch                                    scratch
	angles                                     map[*model.Rope]cuda.Pointer
	inputs                                     inputs
	sampling                                   samplingInputs
	batch                                      model.Batch // of a padded step
	graphs                                     graphs
	largest                                    []int32
	states                                     []float32

	launcher
	attentionShape kernels.AttentionShape

	groups  int  // of layers that share block tables
	pending bool // sums are not yet added to x
}

// NewRunner implements engine.Device. It allocates the blocks, and the memory that the largest batch needs.
func (m *Model) NewRunner(c engine.RunnerConfig) (engine.DeviceRunner, error) {
	r := &Runner{Model: m, config: c, attentionShape: m.attention(c.Store.BlockSize), angles: map[*model.Rope]cuda.Pointer{},
		graphs: graphs{byShape: map[string]*cuda.Graph{}}}
	r.launcher = m.device.launcher()
	for _, p := range c.Places {
		r.groups = max(r.groups, p.Group+1)
	}
	if err := m.device.context.Do(r.allocate); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Runner) allocate() error {
	r.try(func() (err error) { r.blocks, err = newBlocks(r.device, r.config.Store); return err })
	r.allocateBuffers()
	r.allocateAngles()
	r.try(func() error { return r.growAttention(r.attentionBytes()) })
	r.results.allocate(&r.launcher, r.config.MaxLogits(), r.VocabSize)
	for i := range r.flights {
		r.try(func() error { return r.flights[i].allocate(r.context, r.results.Size(), r.picked.Size()) })
	}
	return r.err
}

// allocateAngles computes the tables of rotations.
func (r *Runner) allocateAngles() {
	for rope := range r.ropes() {
		pairs := rope.Rotated(r.HeadDim) / 2
		cos, sin := rope.Angles(r.config.MaxModelLen, r.config.AskedModelLen, r.HeadDim)
		table := make([]float32, 0, 2*len(cos))
		for p := 0; p < len(cos); p += pairs {
			table = append(append(table, cos[p:p+pairs]...), sin[p:p+pairs]...)
		}
		m := r.alloc(4 * len(table))
		r.try(func() error { return m.Write(0, bytesOf(table)) })
		r.angles[rope] = m.Pointer()
	}
}

// Forward implements engine.ModelRunner. It returns when the kernels of the batch, and the copies of its
// results, are in the stream.
func (r *Runner) Forward(b *model.Batch) error {
	r.Prepare(b)
	return r.launchPrepared(b)
}

// check returns an error unless the batch can be computed.
func (r *Runner) check(b *model.Batch) error {
	if err := b.Check(r.Config, r.groups); err != nil {
		return err
	}
	if n := len(b.Tokens); n > r.config.MaxNumBatchedTokens || int(slices.Max(b.Positions)) >= r.config.MaxModelLen {
		return fmt.Errorf("%w: %d tokens up to position %d, for at most %d and %d", model.ErrBatch, n, slices.Max(b.Positions),
			r.config.MaxNumBatchedTokens, r.config.MaxModelLen)
	}
	for _, p := range b.Placeholders {
		if int(p.Logits) >= r.results.rows {
			return fmt.Errorf("%w: a placeholder for the token of logits %d of the batch before, of at most %d", model.ErrBatch, p.Logits, r.results.rows)
		}
	}
	return r.failure()
}

// prepared describes a batch whose inputs were sent to the GPU.
type prepared struct {
	flight *flight
	tokens int // with those of padding
	shape  string
	err    error
}

// Prepare implements engine.DeviceRunner.
func (r *Runner) Prepare(b *model.Batch) {
	p := &r.prepared
	if *p = (prepared{err: r.check(b)}); p.err != nil {
		return
	}
	p.err = r.context.Do(func() (err error) {
		if p.flight, err = r.next(); err != nil {
			return err
		}
		padded, decode := r.padded(b)
		p.tokens = len(padded.Tokens)
		p.shape, err = r.inputs.fill(r, p.flight, padded, decode)
		return err
	})
}

// ForwardPrepared implements engine.DeviceRunner. It sends the tokens of the batch, which were not known to
// Prepare, and then launches it. The tokens are at the beginning of the inputs.
func (r *Runner) ForwardPrepared(b *model.Batch) error {
	if p := &r.prepared; p.err == nil {
		copy(p.flight.inputs.Bytes(), bytesOf(b.Tokens))
		if p.err = r.check(b); p.err == nil {
			p.err = r.stream.Upload(r.inputs.device, 0, p.flight.inputs, 0, 4*len(b.Tokens))
		}
	}
	return r.launchPrepared(b)
}

// launchPrepared computes the prepared batch.
func (r *Runner) launchPrepared(b *model.Batch) error {
	p := r.prepared
	r.prepared = prepared{err: fmt.Errorf("%w: it is not prepared", model.ErrBatch)}
	return r.context.Do(func() error {
		if p.err == nil {
			p.err = r.launchBatch(&p, b)
		}
		if p.err != nil {
			_ = r.stream.Synchronize() // the first error counts
			return p.err
		}
		r.launched = append(r.launched, p.flight)
		return nil
	})
}

// launchBatch computes a batch and its logits and states.
func (r *Runner) launchBatch(p *prepared, b *model.Batch) error {
	f := p.flight
	r.err = nil
	if n := len(r.launched); n > 0 { // the logits of this batch replace those of the one before
		if err := r.sampleRest(r.launched[n-1]); err != nil {
			return err
		}
	}
	f.rows, f.sampled = min(len(b.Logits), r.results.rows), false
	r.inputs.replace(r, b.Placeholders)
	r.try(func() error { return r.graphs.run(p.shape, r.stream, func() error { return r.launchStep(p.tokens) }) })
	r.launchLogits(0, f.rows)
	r.launchStates(0, min(len(b.States), r.results.rows), f.states)
	return r.err
}

// launchStep computes all layers of n tokens.
func (r *Runner) launchStep(n int) error {
	r.embedTokens(n)
	for i := range r.layers {
		r.layer(i, n)
	}
	r.addPending(n)
	return r.err
}

// Close implements engine.ModelRunner.
func (r *Runner) Close() error {
	err := errors.Join(r.stream.Synchronize(), r.graphs.close(), r.inputs.device.Close(), r.sampling.device.Close(), r.scratch.attention.Close(), r.flights[0].close(), r.flights[1].close(), r.allocated.close())
	if r.blocks != nil {
		err = errors.Join(err, r.blocks.close())
	}
	return err
}
