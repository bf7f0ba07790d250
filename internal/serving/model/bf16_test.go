package model_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/half"
	"llmmemory/internal/serving/model"
)

// halves are types in place of those that BF16 activations do not change.
var halves = map[string]string{"Q8_0": "F16", "Q6_K": "BF16", "Q4_0": "BF16", "Q4_K": "F16"}

func shortened(x []float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(half.FromBF16(half.ToBF16(float32(v))))
	}
	return y
}

// The logits are those of the reference that rounds where the model does: F16 weights, and activations that F16 and
// BF16 weights are multiplied by.
func TestBF16ActivationsRoundAndNothingElse(t *testing.T) {
	for which, place := range map[string]map[string]string{"all": halves, "some": nil} {
		t.Run(which, func(t *testing.T) {
			data := mixedGGUF("llama", place)
			b, ref := ggufBench(t, data, model.BF16Activations), ggufReference(openGGUF(t, data), "llama")
			ref.rounds = map[string]func([]float64) []float64{
				"model.layers.0.mlp.up_proj": shortened, "model.layers.1.mlp.up_proj": shortened,
				"model.layers.1.mlp.down_proj": shortened,
			}
			for weight, values := range ref.w {
				name := strings.TrimSuffix(weight, ".weight")
				if place != nil && (strings.HasSuffix(name, "_proj") || name == "lm_head") {
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
