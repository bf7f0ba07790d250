package model_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model"
)

// requireRoundedLogits compares a model with a reference that rounds the same values. The model may round a value near
// the middle between two steps to the other side. This changes the logits of its token and of later tokens. Therefore
// the sequences are short, and fewer than a quarter of the tokens may differ.
func requireRoundedLogits(t *testing.T, b *bench, ref *reference) {
	const sequences, tokens = 24, 3
	differing := 0
	for seed := range uint64(sequences) {
		ref.keys, ref.values = nil, nil
		prompt := randomTokens(seed, tokens)
		logits := b.step(t, part{tokens: prompt, table: randomTable(1, 0, 8)})[0]
		for i, token := range prompt {
			maxError := 0.0
			for j, want := range ref.next(token) {
				maxError = max(maxError, math.Abs(want-float64(logits[i][j])))
			}
			require.Less(t, maxError, 0.5)
			if maxError > 1e-4 {
				differing++
			}
		}
	}
	t.Logf("%d of %d tokens are off", differing, sequences*tokens)
	require.Less(t, differing, sequences*tokens/4)
}

// Ensure that Int8Activations rounds activations and nothing else. The logits must equal those of a reference with
// rounded activations.
func TestInt8ActivationsRoundAndNothingElse(t *testing.T) {
	for _, family := range []string{"llama", "qwen2", "qwen3"} {
		t.Run(family, func(t *testing.T) {
			replace := map[string]string{"Q4_K": "Q4_0", "Q6_K": "Q8_0"}
			switch family {
			case "qwen2":
				replace = map[string]string{"Q4_K": "Q4_1", "Q6_K": "Q5_0"}
			case "qwen3":
				replace = map[string]string{"Q4_K": "Q5_1", "Q6_K": "IQ4_NL", "Q4_0": "MXFP4"}
			}
			data := mixedGGUF(family, replace)
			b, ref := ggufBench(t, data, model.Int8Activations), ggufReference(openGGUF(t, data), family)
			ref.rounds = map[string]func([]float64) []float64{"lm_head": rounded}
			for _, name := range []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
				"mlp.gate_proj", "mlp.down_proj"} {
				ref.rounds["model.layers.0."+name] = rounded
				if name != "mlp.down_proj" { // which is F16 there
					ref.rounds["model.layers.1."+name] = rounded
				}
			}
			requireRoundedLogits(t, b, ref)
		})
	}
}

// Ensure that rounding changes the logits little. Let rms be the root mean square of the logits. The root mean square
// of the changes must be below 5 % of rms, and the largest change below 60 %.
func TestInt8ActivationsChangeLogitsLittle(t *testing.T) {
	tests := []struct {
		family  string
		replace map[string]string
	}{
		{"llama", nil},
		{"llama", map[string]string{"Q4_K": "Q5_K", "Q6_K": "IQ4_XS", "Q4_0": "Q3_K", "Q8_0": "Q2_K"}},
	}
	for i, test := range tests {
		t.Run(fmt.Sprintf("%s %d", test.family, i), func(t *testing.T) {
			data := mixedGGUF(test.family, test.replace)
			maxError, mean, size := logitErrors(t, ggufBench(t, data, model.Int8Activations),
				ggufReference(openGGUF(t, data), test.family))
			t.Logf("off by %.4f at most, %.4f in the mean, of %.2f", maxError, mean, size)
			require.Less(t, mean, 0.05*size)
			require.Less(t, maxError, 0.6*size)
			require.Greater(t, mean, 1e-4, "nothing was rounded")
		})
	}
}

// halves maps quantized types to 16-bit types. A file with these replacements has only matrices in F16 and BF16, so
// BF16Activations changes all of its products. BF16Activations does not change products with quantized weights.
var halves = map[string]string{"Q8_0": "F16", "Q6_K": "BF16", "Q4_0": "BF16", "Q4_K": "F16"}

func shortened(x []float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(half.FromBF16(half.ToBF16(float32(v))))
	}
	return y
}

// Ensure that BF16Activations rounds the right values to BF16: F16 weights, and the activations for F16 and BF16
// weights. The logits must equal those of a reference with the same rounding.
func TestBF16ActivationsRoundAndNothingElse(t *testing.T) {
	for replaced, replace := range map[string]map[string]string{"all": halves, "some": nil} {
		t.Run(replaced, func(t *testing.T) {
			data := mixedGGUF("llama", replace)
			b, ref := ggufBench(t, data, model.BF16Activations), ggufReference(openGGUF(t, data), "llama")
			ref.rounds = map[string]func([]float64) []float64{
				"model.layers.0.mlp.up_proj": shortened, "model.layers.1.mlp.up_proj": shortened,
				"model.layers.1.mlp.down_proj": shortened,
			}
			for weight, values := range ref.w {
				name := strings.TrimSuffix(weight, ".weight")
				if replace != nil && (strings.HasSuffix(name, "_proj") || name == "lm_head") {
					ref.rounds[name] = shortened
				}
				if ref.rounds[name] != nil {
					for i, v := range values {
						values[i] = half.FromBF16(half.ToBF16(v))
					}
				}
			}
			requireRoundedLogits(t, b, ref)
		})
	}
}

func TestBF16ActivationsWantHalves(t *testing.T) {
	pool := newPool(t, 1)
	g := openGGUF(t, mixedGGUF("llama", map[string]string{"F16": "Q8_0", "BF16": "Q8_0"}))
	_, err := model.OpenGGUF(g, pool, model.Part{}, model.BF16Activations)
	require.ErrorIs(t, err, model.ErrNotHalves)
	require.ErrorIs(t, err, model.ErrModel)
}
