package main

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/model"
	"llmmemory/testdata/bench/fatal"
	"llmmemory/testdata/bench/runner"
)

// settings lists the combinations of types to compare. The first rounds nothing; the others are compared with it.
var settings = []struct {
	name        string
	activations []model.Option
	kv          attention.DType
}{
	{"f32, f32", nil, attention.F32},
	{"f32, f16", nil, attention.F16},
	{"f32, bf16", nil, attention.BF16},
	{"f32, fp8_e4m3", nil, attention.E4M3},
	{"f32, fp8_e5m2", nil, attention.E5M2},
	{"f32, int8", nil, attention.Int8},
	{"bf16, f16", []model.Option{model.BF16Activations}, attention.F16},
	{"int8, f16", []model.Option{model.Int8Activations}, attention.F16},
}

// compare prints, for each setting, how log probabilities differ over n tokens, and how often the most
// probable token is the same.
func compare(path string, n int) {
	var exact []float64
	fmt.Println("| activations, keys and values | mean | largest | same token |\n|---|---|---|---|")
	for _, s := range settings {
		p, vocab, err := logProbs(path, n, s.kv, s.activations...)
		if errors.Is(err, model.ErrNotQuantized) || errors.Is(err, model.ErrNotHalves) {
			continue
		}
		fatal.If(err)
		if exact == nil {
			exact = p
			continue
		}
		largest, sum, same := 0.0, 0.0, 0
		for i := range n {
			best, want := 0, 0
			for k, v := range p[i*vocab:][:vocab] {
				off := math.Abs(v - exact[i*vocab+k])
				largest, sum = max(largest, off), sum+off
				if v > p[i*vocab+best] {
					best = k
				}
				if exact[i*vocab+k] > exact[i*vocab+want] {
					want = k
				}
			}
			if best == want {
				same++
			}
		}
		fmt.Printf("| %s | %.1e | %.1e | %.1f %% |\n", s.name, sum/float64(len(p)), largest, 100*float64(same)/float64(n))
	}
}

// logProbs returns the log probabilities of all tokens of the vocabulary after each of the first n tokens of a text.
func logProbs(path string, n int, kv attention.DType, options ...model.Option) (p []float64, vocab int, err error) {
	err = runner.With(path, 1, 1+n/runner.BlockSize, kv, options, func(m *model.Model, r *model.Runner) {
		tokens := make([]int32, n)
		for i := range tokens {
			tokens[i] = int32(i * 37 % m.VocabSize)
		}
		b := runner.Prefill(tokens, 0)
		for i := range n {
			b.Logits = append(b.Logits, int32(i))
		}
		fatal.If(r.Forward(b))
		for _, v := range fatal.Get(r.ComputeLogits(b, 0, n)) {
			p = append(p, float64(v))
		}
		vocab = m.VocabSize
		for row := range slices.Chunk(p, vocab) {
			normalize(row)
		}
	})
	return p, vocab, err
}
