package model_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
	kinds "llmmemory/internal/serving/model/matrix"
	"llmmemory/internal/testkit/level"
)

// Ensure that a model names the types with which most of its weights could be multiplied by rounded activations, if its
// activations are not rounded yet.
func TestRoundingIsWhatMostWeightsAllow(t *testing.T) {
	all := map[string]string{"Q8_0": "F32", "Q6_K": "F32", "Q4_0": "F32", "Q4_K": "F32", "BF16": "F32", "F16": "F32", "Q4_1": "F32"}
	with := func(kinds map[string]string) map[string]string {
		replaced := map[string]string{}
		for kind, other := range all {
			replaced[kind] = other
		}
		for kind, other := range kinds {
			replaced[kind] = other
		}
		return replaced
	}
	for _, test := range level.First(3, []struct {
		name    string
		replace map[string]string
		options []model.Option
		want    model.Rounding
		ok      bool
	}{
		{"floats", all, nil, model.Rounding{}, false},
		{"a few matrices of Q4_0", with(map[string]string{"Q4_0": "Q4_0"}), nil, model.Rounding{Kept: kinds.Int4, Rounded: kinds.W4A8, Block: 32}, true},
		{"fewer of Q4_0 than of F16", with(map[string]string{"Q4_0": "Q4_0", "Q4_K": "F16"}), nil, model.Rounding{Kept: kinds.F16, Rounded: kinds.W16A16}, true},
		{"rounded already", with(map[string]string{"Q4_0": "Q4_0"}), []model.Option{model.Int8Activations}, model.Rounding{}, false},
	}) {

		t.Run(test.name, func(t *testing.T) {
			m := ggufBench(t, mixedGGUF("llama", test.replace), test.options...).m
			have, ok := m.Rounding()
			require.Equal(t, test.ok, ok)
			require.Equal(t, test.want, have)
		})
	}
}
