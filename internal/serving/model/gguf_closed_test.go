package model_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
	"llmmemory/internal/testkit/weightfile"
)

func biases(matrices map[string]int) func(*ggufFile) {
	return func(f *ggufFile) {
		rnd := rand.New(rand.NewPCG(7, 9))
		for l := range ggufLayers {
			for name, n := range matrices {
				v := make([]float32, n)
				for i := range v {
					v[i] = float32(rnd.NormFloat64())
				}
				f.tensors = append(f.tensors, weightfile.F32(fmt.Sprintf("blk.%d.%s.bias", l, name), v, n))
			}
		}
	}
}

func tensor(name string) func(*ggufFile) {
	return func(f *ggufFile) { f.tensors = append(f.tensors, weightfile.F32(name, make([]float32, 64), 64)) }
}

func key(name string, value any) func(*ggufFile) {
	return func(f *ggufFile) { f.meta[name] = value }
}

func ggufBench(t *testing.T, data []byte, options ...model.Option) *bench {
	pool := newPool(t, 2)
	m, err := model.OpenGGUF(openGGUF(t, data), pool, model.Part{}, options...)
	require.NoError(t, err)
	return benchOf(t, m, pool)
}

func openError(t *testing.T, data []byte) error {
	_, err := model.OpenGGUF(openGGUF(t, data), newPool(t, 2), model.Part{})
	return err
}

func TestGGUFBiasesAreUsed(t *testing.T) {
	query, kv := ggufHeads*ggufDim, ggufKVHeads*ggufDim
	qkv := map[string]int{"attn_q": query, "attn_k": kv, "attn_v": kv}
	outputs := map[string]int{"attn_output": ggufHidden}
	mlp := map[string]int{"ffn_gate": ggufHidden, "ffn_up": ggufHidden, "ffn_down": ggufHidden}
	for _, test := range []struct {
		name, family string
		changes      []func(*ggufFile)
	}{
		{"all", "llama", []func(*ggufFile){biases(qkv), biases(outputs), biases(mlp)}},
		{"of the output of Qwen2", "qwen2", []func(*ggufFile){biases(outputs)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := mixedGGUF(test.family, nil, test.changes...)
			maxError, _, size := logitErrors(t, ggufBench(t, data), ggufReference(openGGUF(t, data), test.family))
			require.Less(t, maxError, 0.02*max(1, size))
		})
	}
	err := openError(t, mixedGGUF("llama", nil, biases(map[string]int{"attn_q": query, "attn_v": kv})))
	require.ErrorContains(t, err, `"blk.0.attn_k.bias" is missing`)
}

// Ensure that positions are divided by the scaling factor, unless it is 0 or the scaling has the type none. A file
// states the factor under the key rope.scaling.factor, or else under its older name rope.scale_linear (llama.cpp's
// load_hparams).
func TestGGUFLinearRopeScalingIsUsed(t *testing.T) {
	const linear, factor, kind = "llama.rope.scale_linear", "llama.rope.scaling.factor", "llama.rope.scaling.type"
	for _, test := range []struct {
		name  string
		meta  map[string]any
		ratio float64
	}{
		{"its older name", map[string]any{linear: float32(4)}, 4},
		{"without a type", map[string]any{factor: float32(4)}, 4},
		{"with a type", map[string]any{factor: float32(4), kind: "linear"}, 4},
		{"its older name with a type", map[string]any{linear: float32(4), kind: "linear"}, 4},
		{"both names", map[string]any{linear: float32(2), factor: float32(4)}, 4},
		{"type none", map[string]any{factor: float32(4), kind: "none"}, 0},
		{"0", map[string]any{factor: float32(0)}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := model.ConfigFromGGUF(openGGUF(t, mixedGGUF("llama", nil, func(f *ggufFile) { maps.Copy(f.meta, test.meta) })))
			require.NoError(t, err)
			require.Equal(t, test.ratio, c.Rope.Linear)
		})
	}
}

func TestGGUFRopeFactorsAreUsed(t *testing.T) {
	factors := make([]float32, ggufDim/2)
	for i := range factors {
		factors[i] = 1 + float32(i)/8
	}
	data := mixedGGUF("llama", nil, func(f *ggufFile) {
		f.tensors = append(f.tensors, weightfile.F32("rope_freqs.weight", factors, len(factors)))
	})
	ref := ggufReference(openGGUF(t, data), "llama")
	ref.scale = func(f float64) float64 {
		i := math.Round(-math.Log(f) / math.Log(ref.theta) * ggufDim / 2)
		return f / float64(factors[int(i)])
	}
	maxError, _, _ := logitErrors(t, ggufBench(t, data), ref)
	require.Less(t, maxError, 0.02)
}

func TestTensorsOfGGUFThatAreNotUsedAreRefusedByName(t *testing.T) {
	for _, test := range []struct{ family, name string }{
		{"llama", "blk.0.attn_q_norm.weight"},
		{"llama", "blk.0.attn_norm.bias"},
		{"llama", "blk.1.attn_q.scale"},
		{"llama", "output.bias"},
		{"qwen2", "rope_freqs.weight"},
		{"qwen3", "cls.output.weight"},
	} {
		t.Run(test.family+" "+test.name, func(t *testing.T) {
			err := openError(t, mixedGGUF(test.family, nil, tensor(test.name)))
			require.ErrorIs(t, err, model.ErrModel)
			require.ErrorContains(t, err, fmt.Sprintf("the tensor %q is not supported in models of the architecture %q",
				test.name, test.family))
		})
	}
}

// Ensure that a GGUF file is refused if a key with the prefix "llama." is not supported or has a value that is not
// supported. The error must name the key. The last file of the test must be accepted: each additional key has a value
// that changes nothing, is ignored by llama.cpp as well, or does not have this prefix.
func TestKeysOfGGUFThatAreNotUsedAreRefusedByName(t *testing.T) {
	for _, test := range []struct {
		name  string
		value any
	}{
		{"logit_scale", float32(0.5)}, {"attention.scale", float32(0.5)}, {"attention.causal", false},
		{"attention.clamp_kqv", float32(8)},
		{"attn_logit_softcapping", float32(50)}, {"final_logit_softcapping", float32(30)}, {"embedding_scale", float32(2)},
		{"residual_scale", float32(2)}, {"expert_used_count", uint32(2)},
		{"rope.scaling.yarn_log_multiplier", float32(1)}, {"attention.sliding_window_pattern", uint32(2)},
		{"never.heard_of", "x"},
		{"nextn_predict_layers", uint32(1)}, {"rope.dimension_sections", []int32{1, 2}},
		{"attention.head_count", "four"}, {"attention.head_count_kv", []int32{2, 2}},
		{"feed_forward_length", []int32{256, 256}},
		{"rope.scaling.type", uint32(1)}, {"rope.freq_base", "10000"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := model.ConfigFromGGUF(openGGUF(t, mixedGGUF("llama", nil, key("llama."+test.name, test.value))))
			require.ErrorIs(t, err, model.ErrModel)
			require.ErrorContains(t, err, "llama."+test.name)
		})
	}
	taken := mixedGGUF("llama", nil, key("llama.vocab_size", uint32(ggufVocab)),
		key("llama.tensor_data_layout", "Meta AI original pth"),
		key("llama.rope.scaling.original_context_length", uint32(2048)), key("llama.rope.scaling.finetuned", true),
		key("llama.attention.causal", true), key("llama.expert_count", uint32(0)),
		key("llama.attention.clamp_kqv", float32(0)),
		key("llama.rope.dimension_count", uint32(ggufDim)), key("llama.attention.key_length", uint32(ggufDim)),
		key("llama.attention.value_length", uint32(ggufDim)), key("general.sampling.temp", float32(0.5)),
		key("qwen2.never.heard_of", "x"))
	_, err := model.ConfigFromGGUF(openGGUF(t, taken))
	require.NoError(t, err)
}

func TestKeysThatAreMissingAreNamed(t *testing.T) {
	for _, test := range []struct {
		tiny   string
		change func(*weightfile.Tiny)
		want   string
	}{
		{"llama", removeKey("llama.context_length"), "the key llama.context_length is missing"},
		{"llama", removeKey("llama.block_count"), "the key llama.block_count is missing"},
		{"llama", removeKey("llama.embedding_length"), "the key llama.embedding_length is missing"},
		{"llama", removeKey("llama.feed_forward_length"), "the key llama.feed_forward_length is missing"},
		{"llama", removeKey("llama.attention.head_count"), "the key llama.attention.head_count is missing"},
		{"llama", removeKey("llama.attention.layer_norm_rms_epsilon"),
			"the key llama.attention.layer_norm_rms_epsilon is missing"},
		{"llama", removeKey("general.architecture"), "the key general.architecture is missing"},
		{"gpt-oss", removeKey("gpt-oss.attention.sliding_window"), "the key gpt-oss.attention.sliding_window is missing"},
		{"llama", func(t *weightfile.Tiny) { t.Meta["llama.block_count"] = uint32(3) },
			"the file has tensors of layer 3; llama.block_count is 3"},
		{"llama", func(t *weightfile.Tiny) { t.Meta["llama.rope.freq_base"] = float32(0) }, "rope_theta is 0"},
		{"llama", func(t *weightfile.Tiny) { t.Meta["llama.rope.dimension_count"] = uint32(8) },
			"8 of 16 elements of a head are rotated; all is supported"},
		{"granite", func(t *weightfile.Tiny) { t.Meta["granite.logit_scale"] = float32(0) },
			"granite.logit_scale is not above 0"},
		{"phi3, longrope", func(t *weightfile.Tiny) { t.Tensors = t.Tensors[:len(t.Tensors)-1] },
			`the tensor "rope_factors_long.weight" is missing; the file has "rope_factors_short.weight"`},
		{"phi3, longrope", func(t *weightfile.Tiny) { t.Tensors = t.Tensors[:len(t.Tensors)-2] },
			`the tensor "rope_factors_long.weight" is missing; the file has phi3.rope.scaling.attn_factor`},
		{"llama", func(t *weightfile.Tiny) {
			for i := range weightfile.TinyLayers {
				name := fmt.Sprintf("blk.%d.attn_q.bias", i)
				t.Tensors = append(t.Tensors, weightfile.F32(name, make([]float32, 64), 64))
			}
		}, `the tensor "blk.0.attn_k.bias" is missing; the file has "blk.0.attn_q.bias"`},
	} {
		t.Run(test.want, func(t *testing.T) {
			tiny := tinyOf(t, test.tiny)
			test.change(tiny)
			err := openError(t, tiny.GGUF())
			require.ErrorIs(t, err, model.ErrModel)
			require.ErrorContains(t, err, test.want)
		})
	}
}

func removeKey(key string) func(*weightfile.Tiny) {
	return func(t *weightfile.Tiny) { delete(t.Meta, key) }
}
