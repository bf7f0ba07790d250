package gpu

import (
	"fmt"
	"math"

	"llmmemory/internal/serving/cuda"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/model"
)

// Sample implements engine.DeviceRunner.
func (r *Runner) Sample(choices []sampling.Choice) error {
	n := len(r.launched)
	if n == 0 || r.launched[n-1].sampled || len(choices) > r.launched[n-1].rows {
		return fmt.Errorf("%w: %d tokens cannot be chosen: no batch was begun, it has fewer rows of logits, or its tokens are chosen already", model.ErrBatch, len(choices))
	}
	return r.context.Do(func() error {
		r.err = nil
		if r.sample(r.launched[n-1], len(choices), choices); r.err != nil {
			_ = r.stream.Synchronize() // the first error counts
			r.launched = r.launched[:n-1]
		}
		return r.err
	})
}

// sampleRest takes the tokens with the largest logits of a batch, unless Sample has chosen its tokens.
func (r *Runner) sampleRest(f *flight) error {
	r.err = nil
	if !f.sampled {
		r.sample(f, f.rows, nil)
	}
	return r.err
}

// sample chooses tokens from the first n rows of logits, and copies to the host the tokens and the rows that are needed
// there. Without choices, these are all rows, and the tokens are those with the largest logits.
func (r *Runner) sample(f *flight, n int, choices []sampling.Choice) {
	f.sampled = true
	if n > 0 {
		r.downloadLogits(f.results, n, choices)
		x := &r.sampling
		x.collect(n, choices, r.VocabSize)
		k := kernels.Sample{Tokens: r.results.address(r.results.tokens()), Values: r.results.address(r.results.tokens() + 4*r.results.rows),
			Logits: r.results.address(0), Rows: n, N: r.VocabSize}
		r.try(func() error {
			return r.send(&x.device, &f.sampling, []field{fieldOf(&k.Params, x.rows), fieldOf(&k.Biases, x.biases),
				fieldOf(&k.Counts, x.counts), fieldOf(&k.Masks, x.masks)})
		})
		r.launch(&k)
		r.try(func() error {
			return r.stream.Download(f.results, r.results.tokens(), r.results.Memory, r.results.tokens(), 8*r.results.rows)
		})
	}
	r.try(func() error { return r.stream.Record(f.computed) })
}

// downloadLogits copies to the host the rows of logits that are needed there.
func (r *Runner) downloadLogits(host *cuda.Pinned, n int, choices []sampling.Choice) {
	needed := func(i int) bool {
		return i < n && (choices == nil || choices[i].Params == nil || choices[i].Logits)
	}
	for first := 0; first < n; first++ {
		end := first
		for needed(end) {
			end++
		}
		offset, size := 4*first*r.results.size, 4*(end-first)*r.results.size
		r.try(func() error { return r.stream.Download(host, offset, r.results.Memory, offset, size) })
		first = end
	}
}

// samplingInputs are the inputs of the kernel that chooses tokens.
type samplingInputs struct {
	device *cuda.Memory
	rows   []kernels.SamplingRow
	biases []kernels.SamplingBias
	counts []kernels.SamplingCount
	masks  []uint64
}

// collect fills the inputs for n rows of logits. Without choices, the tokens are those with the largest logits.
func (x *samplingInputs) collect(n int, choices []sampling.Choice, vocab int) {
	x.rows, x.biases, x.counts, x.masks = x.rows[:0], x.biases[:0], x.counts[:0], x.masks[:0]
	for i := range n {
		row := kernels.SamplingRow{TopP: math.MaxUint64, Repetition: 1, Token: -1, Mask: -1}
		if choices != nil && choices[i].Params != nil {
			x.add(&row, &choices[i], vocab)
		}
		x.rows = append(x.rows, row)
	}
}

func (x *samplingInputs) add(row *kernels.SamplingRow, c *sampling.Choice, vocab int) {
	if row.Token = c.Only; c.Only >= 0 {
		return
	}
	if s := c.Weights(); s.Scale > 0 {
		row.Scale, row.MinP, row.TopP, row.Random = s.Scale, s.MinP, s.TopP, s.Random
		if c.TopK < vocab {
			row.TopK = int32(c.TopK)
		}
	}
	row.Repetition, row.Frequency, row.Presence = float32(c.RepetitionPenalty), float32(c.FrequencyPenalty), float32(c.PresencePenalty)
	row.BiasStart, row.CountStart = int32(len(x.biases)), int32(len(x.counts))
	for id, bias := range c.Biases() {
		x.biases = append(x.biases, kernels.SamplingBias{Token: id, Bias: bias})
	}
	for _, n := range c.Counted() {
		x.counts = append(x.counts, kernels.SamplingCount(n))
	}
	row.BiasEnd, row.CountEnd = int32(len(x.biases)), int32(len(x.counts))
	if c.Allowed != nil {
		row.Mask = int32(len(x.masks))
		words := (vocab + 63) / 64
		x.masks = append(x.masks, c.Allowed[:min(words, len(c.Allowed))]...)
		x.masks = append(x.masks, make([]uint64, int(row.Mask)+words-len(x.masks))...)
	}
}
