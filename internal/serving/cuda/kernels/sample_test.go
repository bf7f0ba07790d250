package kernels_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"llmmemory/internal/serving/cuda/kernels"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/model/matrix"
)

// Ensure that sample finds the same largest logit as the CPU: the first of equal logits, and none if a logit is NaN or
// infinite. Tests of package gpu compare what it chooses with a temperature.
func TestTheLargestLogitIsThatOfTheCPU(t *testing.T) {
	g := newGPU(t)
	const n = 3000
	inf := math.Inf(1)
	rows := map[string]func(row []float64){
		"random":             func([]float64) {},
		"equal ones":         func(row []float64) { row[1700], row[40], row[2999] = 50, 50, 50 },
		"the last one":       func(row []float64) { row[n-1] = 50 },
		"NaN after the best": func(row []float64) { row[5], row[n-1] = 50, math.NaN() },
		"NaN at 0":           func(row []float64) { row[0], row[1] = math.NaN(), 50 },
		"infinite":           func(row []float64) { row[77], row[78] = inf, inf },
		"all minus infinity": func(row []float64) {
			for i := range row {
				row[i] = -inf
			}
		},
		"zeros of both signs": func(row []float64) {
			for i := range row {
				row[i] = -1
			}
			row[9], row[8] = 0, math.Copysign(0, -1)
		},
	}
	var all []float64
	var names []string
	for name, change := range rows {
		row := random(kernels.F16, uint64(len(all)), n)
		change(row)
		all, names = append(all, row...), append(names, name)
	}
	logits := g.bytes(floats(all...))
	params := make([]kernels.SamplingRow, len(names))
	for i := range params {
		params[i] = kernels.SamplingRow{TopP: math.MaxUint64, Repetition: 1, Token: -1, Mask: -1}
	}
	sent := g.bytes(encoded(t, params))
	for order := range 2 {
		g.Order(order)
		tokens, values := g.empty(4*len(names)), g.empty(4*len(names))
		require.NoError(t, kernels.Sample{Tokens: tokens.Pointer(), Values: values.Pointer(), Logits: logits.Pointer(), Rows: len(names), N: n,
			Params: sent.Pointer()}.Launch(g.set, g.stream))
		for i, name := range names {
			row := make([]float32, n)
			for j := range row {
				row[j] = float32(all[i*n+j])
			}
			index, value := matrix.ArgMax(row)
			if value-value != 0 {
				index = 0
			}
			require.Equal(t, int32(index), int32At(g.read(tokens), i), name)
			got := math.Float32frombits(uint32(int32At(g.read(values), i)))
			require.True(t, got == value || got != got && value != value, "%s: %v, want %v", name, got, value)
		}
	}
}

// encoded returns the bytes of structs.
func encoded(t *testing.T, list any) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, binary.Write(&b, binary.LittleEndian, list))
	return b.Bytes()
}

// Ensure that sample chooses the tokens of the CPU, with all parameters. Tests of package gpu draw other parameters.
func TestSampleChoosesAsTheCPU(t *testing.T) {
	g := newGPU(t)
	const rows, n, masked = 6, 700, 500
	state := sampling.State{Prompt: []int32{1, 2, 3}, Output: []int32{2, 699, 2}, Allowed: make([]uint64, (n+63)/64)}
	for token := range masked {
		state.Allowed[token/64] |= 1 << (token % 64)
	}
	bias := map[int32]float32{5: 1, 6: -1}
	numbers := random(kernels.F16, 1, rows*n)
	var s sampling.Sampler
	var params []kernels.SamplingRow
	want := make([]int32, rows)
	for i := range rows {
		p := sampling.Default()
		p.Seed, p.LogitBias, p.RepetitionPenalty, p.FrequencyPenalty, p.PresencePenalty = uint64(i), bias, 1.5, 0.25, 0.5
		row := kernels.SamplingRow{Random: sampling.Random(p.Seed, len(state.Output)), TopP: math.MaxUint64, Scale: 1, Repetition: 1.5, Frequency: 0.25,
			Presence: 0.5, Token: -1, BiasEnd: 2, CountEnd: 4}
		if i%2 == 1 {
			p.TopK, row.TopK = 100, 100
		}
		if i > 1 {
			p.TopP, row.TopP = 0.5, 1<<63
		}
		if i > 3 {
			p.MinP, row.MinP = 0.125, 0.125
		}
		logits := make([]float32, n)
		for j := range logits {
			logits[j] = float32(numbers[i*n+j])
		}
		want[i] = s.Sample(&p, state, logits)
		params = append(params, row)
	}
	tokens := g.empty(4 * rows)
	biases, counts := []kernels.SamplingBias{{Token: 5, Bias: 1}, {Token: 6, Bias: -1}}, []kernels.SamplingCount{{Token: 1}, {Token: 2, Output: 2}, {Token: 3}, {Token: 699, Output: 1}}
	require.NoError(t, kernels.Sample{Tokens: tokens.Pointer(), Values: g.empty(4 * rows).Pointer(), Logits: g.bytes(floats(numbers...)).Pointer(), Rows: rows, N: n,
		Params: g.bytes(encoded(t, params)).Pointer(), Biases: g.bytes(encoded(t, biases)).Pointer(), Counts: g.bytes(encoded(t, counts)).Pointer(),
		Masks: g.bytes(encoded(t, state.Allowed)).Pointer()}.Launch(g.set, g.stream))
	for i := range want {
		require.Equal(t, want[i], int32At(g.read(tokens), i), "row %d", i)
	}
}
