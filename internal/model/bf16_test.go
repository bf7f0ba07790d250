package model_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/half"
	"llmmemory/internal/model"
	"llmmemory/internal/model/weights"
	"llmmemory/internal/parallel"
)

// halves are types in place of those that BF16 activations do not change.
var halves = map[string]string{"Q8_0": "F16", "Q6_K": "BF16", "Q4_0": "BF16", "Q4_K": "F16"}

func bf16Model(t *testing.T, g *weights.GGUF) *bench {
	pool, err := parallel.New(2)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	m, err := model.OpenGGUF(g, pool, model.Part{}, model.BF16Activations)
	require.NoError(t, err)
	return benchOf(t, m, pool)
}

func shortened(x []float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(half.FromBF16(half.ToBF16(float32(v))))
	}
	return y
}

// The logits are those of the reference that rounds where the model does: F16 weights, and activations that F16 and
// BF16 weights are multiplied by. As in TestInt8ActivationsRoundAndNothingElse, few tokens may be off.
func TestBF16ActivationsRoundAndNothingElse(t *testing.T) {
	const sequences, tokens = 40, 3
	for which, place := range map[string]map[string]string{"all": halves, "some": nil} {
		t.Run(which, func(t *testing.T) {
			g := openGGUF(t, mixedGGUF("llama", place))
			b, ref := bf16Model(t, g), ggufReference(g, "llama")
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
			off := 0
			for seed := range uint64(sequences) {
				ref.keys, ref.values = nil, nil
				prompt := randomTokens(seed, tokens)
				logits := b.step(t, part{tokens: prompt, table: randomTable(1, 0, 8)})[0]
				for i, token := range prompt {
					most := 0.0
					for j, want := range ref.next(token) {
						most = max(most, math.Abs(want-float64(logits[i][j])))
					}
					require.Less(t, most, 0.5)
					if most > 1e-4 {
						off++
					}
				}
			}
			t.Logf("%d of %d tokens are off", off, sequences*tokens)
			require.Less(t, off, sequences*tokens/4)
		})
	}
}

func TestBF16ActivationsWantHalves(t *testing.T) {
	pool, err := parallel.New(1)
	require.NoError(t, err)
	defer pool.Close()
	g := openGGUF(t, mixedGGUF("llama", map[string]string{"F16": "Q8_0", "BF16": "Q8_0"}))
	_, err = model.OpenGGUF(g, pool, model.Part{}, model.BF16Activations)
	require.ErrorIs(t, err, model.ErrNotHalves)
	require.ErrorIs(t, err, model.ErrModel)
}

func TestPartsWithBF16ActivationsComputeTheBitsOfTheWhole(t *testing.T) {
	g := openGGUF(t, mixedGGUF("llama", halves))
	open := func(pool *parallel.Pool, p model.Part) (*model.Model, error) {
		return model.OpenGGUF(g, pool, p, model.BF16Activations)
	}
	requireSameBits(t, join(t, 1, open), join(t, 2, open))
}

func TestForwardWithBF16ActivationsAllocatesNothing(t *testing.T) {
	requireNoAllocations(t, bf16Model(t, openGGUF(t, mixedGGUF("llama", halves))), 20)
}
