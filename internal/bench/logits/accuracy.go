package main

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"llmmemory/internal/bench/fatal"
	"llmmemory/internal/serving/attention"
	"llmmemory/internal/serving/model"
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
// probable token is the same. If driver is not "", it also compares a GPU.
func compare(path string, n int, driver string) {
	var exact []float64
	vocabulary := 0
	fmt.Println("| activations, keys and values | mean | largest | same token |\n|---|---|---|---|")
	for _, s := range settings {
		p, vocab, err := logProbs(path, n, s.kv, s.activations...)
		if errors.Is(err, model.ErrNotQuantized) || errors.Is(err, model.ErrNotHalves) {
			continue
		}
		fatal.If(err)
		if exact == nil {
			exact, vocabulary = p, vocab
			continue
		}
		printRow(s.name, p, exact, vocab)
	}
	if driver == "" {
		return
	}
	for _, kind := range []string{"f16", "bf16"} {
		printRow(fmt.Sprintf("GPU: %[1]s, %[1]s", kind), fatal.Get(onGPU(driver, path, n, kind)), exact, vocabulary)
	}
}

// printRow prints how log probabilities differ from exact ones. Both have a row of vocab numbers for each token.
func printRow(name string, p, exact []float64, vocab int) {
	largest, sum, numEqual := 0.0, 0.0, 0
	for row := 0; row < len(p); row += vocab {
		best, want := 0, 0
		for k, v := range p[row:][:vocab] {
			diff := math.Abs(v - exact[row+k])
			largest, sum = max(largest, diff), sum+diff
			if v > p[row+best] {
				best = k
			}
			if exact[row+k] > exact[row+want] {
				want = k
			}
		}
		if best == want {
			numEqual++
		}
	}
	fmt.Printf("| %s | %.1e | %.1e | %.1f %% |\n", name, sum/float64(len(p)), largest, 100*float64(numEqual*vocab)/float64(len(p)))
}

// logProbs returns the log probabilities of all tokens of the vocabulary after each of the first n tokens of a text.
func logProbs(path string, n int, kv attention.DType, options ...model.Option) (p []float64, vocab int, err error) {
	err = withRunner(path, 1+n/blockSize, kv, options, func(m *model.Model, r *model.Runner) {
		b := prompt(n, m.VocabSize)
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
