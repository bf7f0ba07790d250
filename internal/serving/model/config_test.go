package model_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
	"llmmemory/internal/testkit/weightfile"
)

const smallLlama = `{"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "eos_token_id": `

func TestTokensThatEndASequence(t *testing.T) {
	for _, test := range []struct {
		name, config, generation string
		want                     []int32
	}{
		{"one", smallLlama + `2}`, "", []int32{2}},
		{"several", smallLlama + `[2, 3]}`, "", []int32{2, 3}},
		{"none", smallLlama + `null}`, "", nil},
		{"of generation_config.json", smallLlama + `2}`, `{"eos_token_id": [4, 5]}`, []int32{4, 5}},
		{"not in generation_config.json", smallLlama + `2}`, `{"temperature": 0.6}`, []int32{2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(test.config), 0o644))
			if test.generation != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, "generation_config.json"), []byte(test.generation), 0o644))
			}
			c, err := model.ReadConfig(dir)
			require.NoError(t, err)
			require.Equal(t, test.want, c.End)
			require.False(t, c.TieEmbeddings, "Llama's default")
		})
	}
}

// Ensure that a layer has a sliding window if, and only if, it has one in transformers. By default, all layers of
// Mistral have a window, and no layers of Llama. In Qwen, no layer has a window unless use_sliding_window is true; then
// only the first max_window_layers layers have none. In Mistral and Qwen, the list layer_types overrides the choice of
// layers.
func TestWhichLayersHaveAWindow(t *testing.T) {
	qwen := func(extra map[string]any) map[string]any {
		all := map[string]any{"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 8}
		maps.Copy(all, extra)
		return all
	}
	for _, test := range []struct {
		name   string
		change map[string]any
		window int
		full   int    // layers without it
		want   string // of the error
	}{
		{"Llama", map[string]any{"sliding_window": 8}, 0, 0, ""},
		{"Mistral", map[string]any{"model_type": "mistral", "sliding_window": 8}, 8, 0, ""},
		{"Mistral with null", map[string]any{"model_type": "mistral", "sliding_window": nil}, 0, 0, ""},
		{"Mistral without one", map[string]any{"model_type": "mistral"}, 4096, 0, ""},
		{"a window of no type", map[string]any{"model_type": "mistral", "sliding_window": "8"}, 0, 0, "sliding_window"},
		{"Qwen2 that does not use it", qwen(map[string]any{"use_sliding_window": false, "max_window_layers": 0}), 0, 0, ""},
		{"Qwen2 that does not say", map[string]any{"model_type": "qwen2", "sliding_window": 8}, 0, 0, ""},
		{"all layers of Qwen2", qwen(map[string]any{"max_window_layers": 0}), 8, 0, ""},
		{"all layers of Qwen3", qwen(map[string]any{"model_type": "qwen3", "max_window_layers": 0}), 8, 0, ""},
		{"no layer of Qwen2", qwen(map[string]any{"max_window_layers": 2}), 0, 0, ""},
		{"the first 28 layers have none by default", qwen(nil), 0, 0, ""},
		{"some layers of Qwen2", qwen(map[string]any{"max_window_layers": 1}), 8, 1, ""},
		{"all layers by name", qwen(map[string]any{"layer_types": []string{"sliding_attention", "sliding_attention"}}), 8, 0,
			""},
		{"no layer by name", qwen(map[string]any{"layer_types": []string{"full_attention", "full_attention"},
			"max_window_layers": 0}), 0, 0, ""},
		{"some layers by name", qwen(map[string]any{"layer_types": []string{"full_attention", "sliding_attention"}}), 8, 1, ""},
		{"a layer of another type", qwen(map[string]any{"layer_types": []string{"full_attention", "linear_attention"}}), 0, 0,
			`"linear_attention"`},
		{"some layers of Mistral", map[string]any{"model_type": "mistral", "sliding_window": 8,
			"layer_types": []string{"full_attention", "sliding_attention"}}, 8, 1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			config := families()[0].config
			maps.Copy(config, test.change)
			data, err := json.Marshal(config)
			require.NoError(t, err)
			c, err := model.ParseConfig(data)
			if test.want != "" {
				require.ErrorIs(t, err, model.ErrModel)
				require.ErrorContains(t, err, test.want)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.window, c.SlidingWindow)
			full := 0
			for _, noWindow := range c.Full {
				if noWindow {
					full++
				}
			}
			require.Equal(t, test.full, full)
		})
	}
}

// Ensure that settings missing from config.json have transformers' defaults for the family.
func TestWhatConfigNeedNotState(t *testing.T) {
	for _, test := range []struct {
		kind           string
		theta, eps     float64
		dim            int
		tied           bool
		window, period int // every n-th layer has no window, n being period; if period is 0, all layers have the window
	}{
		{"llama", 10000, 1e-6, 16, false, 0, 0}, {"mistral", 10000, 1e-6, 16, false, 4096, 0},
		{"mixtral", 10000, 1e-5, 16, false, 0, 0}, {"qwen2", 10000, 1e-6, 16, false, 0, 0},
		{"qwen3", 10000, 1e-6, 16, false, 0, 0}, {"qwen2_moe", 10000, 1e-6, 16, false, 0, 0},
		{"qwen3_moe", 10000, 1e-6, 16, false, 0, 0}, {"phi3", 10000, 1e-5, 16, false, 0, 0},
		{"smollm3", 2000000, 1e-6, 16, true, 0, 0}, {"granite", 10000, 1e-6, 16, false, 0, 0},
		{"olmo2", 10000, 1e-5, 16, false, 0, 0}, {"olmo3", 10000, 1e-5, 16, false, 4096, 4},
		{"gemma2", 10000, 1e-6, 256, true, 4096, 2}, {"gemma3_text", 1000000, 1e-6, 256, true, 4096, 6},
		{"gpt_oss", 150000, 1e-5, 64, false, 128, 2}, {"opt", 0, 1e-5, 16, true, 0, 0}, {"gpt2", 0, 1e-5, 16, true, 0, 0},
	} {
		t.Run(test.kind, func(t *testing.T) {
			c, err := model.ParseConfig(fmt.Appendf(nil, `{"model_type": %q, "vocab_size": 9, "hidden_size": 64,
				"num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 8, "ffn_dim": 8, "n_embd": 64,
				"n_layer": 12, "n_head": 4, "num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1,
				"moe_intermediate_size": 8}`, test.kind))
			require.NoError(t, err)
			if c.Rope != nil {
				require.Equal(t, test.theta, c.Rope.Theta)
			}
			require.Equal(t, test.theta != 0, c.Rope != nil)
			require.Equal(t, test.eps, c.NormEps)
			require.Equal(t, test.dim, c.HeadDim)
			require.Equal(t, test.tied, c.TieEmbeddings)
			require.Equal(t, test.window, c.SlidingWindow)
			for i := range c.NumLayers {
				want := test.window
				if test.period > 0 && i%test.period == test.period-1 {
					want = 0
				}
				require.Equal(t, want, c.Window(i), "layer %d", i)
			}
		})
	}
}

func TestConfigurationsThatAreNotSupportedAreRefused(t *testing.T) {
	tests := []struct {
		name   string
		change map[string]any
		want   string
	}{
		{"another family", map[string]any{"model_type": "mamba"}, `model_type is "mamba"`},
		{"another activation", map[string]any{"hidden_act": "gelu"}, `hidden_act is "gelu"`},
		{"another rope scaling", map[string]any{"rope_scaling": map[string]any{"rope_type": "ntk", "factor": 4}},
			`rope scaling of type "ntk"`},
		{"yarn that shrinks", map[string]any{"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 0.5}}, "yarn rope"},
		{"longrope without factors", map[string]any{"rope_scaling": map[string]any{"rope_type": "longrope", "factor": 4}},
			"longrope scaling with 0 and 0 factors for 4 frequencies"},
		{"half an element", map[string]any{"partial_rotary_factor": 0.4}, "3 of 8 elements of a head"},
		{"experts that are not there", map[string]any{"model_type": "mixtral", "num_experts_per_tok": 2}, "2 of 0 experts"},
		{"a list for other layers", map[string]any{"model_type": "smollm3", "no_rope_layers": []int{1}}, "1 layers are described"},
		{"llama3 scaling without its settings",
			map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 4}}, "llama3 rope scaling"},
		{"llama3 scaling without a factor", map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3"}},
			"rope_scaling of type llama3 has no factor"},
		{"linear scaling without a factor", map[string]any{"rope_scaling": map[string]any{"type": "linear"}},
			"rope_scaling of type linear has no factor"},
		{"theta of 0", map[string]any{"rope_theta": 0}, "rope_theta is 0"},
		{"theta of 0 in newer files", map[string]any{"rope_parameters": map[string]any{"rope_theta": 0}}, "rope_theta is 0"},
		{"logits divided by 0", map[string]any{"model_type": "granite", "logits_scaling": 0}, "logits_scaling is 0"},
		{"kinds of fewer layers", map[string]any{"layer_types": []string{"full_attention"}},
			"layer_types has 1 elements; num_hidden_layers is 2"},
		{"kinds of more layers", map[string]any{"model_type": "gemma3_text", "hidden_act": nil,
			"layer_types": []string{"sliding_attention", "sliding_attention", "sliding_attention"}},
			"layer_types has 3 elements; num_hidden_layers is 2"},
		{"a classifier", map[string]any{"architectures": []string{"LlamaForTokenClassification"}},
			"LlamaForTokenClassification generates no text"},
		{"heads that do not divide", map[string]any{"num_attention_heads": 5}, "5 query heads on 3 key heads"},
		{"no layers", map[string]any{"num_hidden_layers": 0}, "num_hidden_layers is 0"},
		{"an absurd size", map[string]any{"vocab_size": 1 << 40}, "vocab_size"},
		{"heads too large", map[string]any{"head_dim": 512}, "heads of 512 elements"},
		{"no such end", map[string]any{"eos_token_id": 97}, "eos_token_id is 97; the vocabulary has 97 tokens"},
		{"end of no type", map[string]any{"eos_token_id": "x"}, "eos_token_id"},
		{"epsilon", map[string]any{"rms_norm_eps": 2.0}, "epsilon"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := families()[0].config
			maps.Copy(config, test.change)
			data, err := json.Marshal(config)
			require.NoError(t, err)
			_, err = model.ParseConfig(data)
			require.ErrorIs(t, err, model.ErrModel)
			require.ErrorContains(t, err, test.want)
		})
	}
	_, err := model.ParseConfig([]byte("{"))
	require.ErrorIs(t, err, model.ErrModel)
	_, err = model.ParseConfig([]byte(`{"model_type": "opt", "do_layer_norm_before": false}`))
	require.ErrorContains(t, err, "OPT-350m")
}

func TestTensorsThatDoNotFitAreNamed(t *testing.T) {
	pool := newPool(t, 1)
	for _, f := range families() {
		dir := f.write(t)
		for _, name := range []string{slices.Min(slices.Collect(maps.Keys(f.tensors()))), "model.layers.1.mlp.down_proj.weight"} {
			if f.tensors()[name] == nil {
				continue
			}
			for _, damage := range []struct {
				change func(weightfile.Tensor) []weightfile.Tensor
				want   string
			}{
				{func(weightfile.Tensor) []weightfile.Tensor { return nil }, "is missing"},
				{func(weightfile.Tensor) []weightfile.Tensor {
					return []weightfile.Tensor{weightfile.F32(name, []float32{1, 2, 3}, 3, 1)}
				}, "3 × 1"},
				{func(t weightfile.Tensor) []weightfile.Tensor {
					t.DType = "F8_E4M3"
					return []weightfile.Tensor{t}
				}, "of type F8_E4M3"},
			} {
				f.rewrite(t, dir, name, damage.change)
				_, err := model.OpenFolder(dir, pool, model.Part{})
				require.ErrorIs(t, err, model.ErrModel)
				require.ErrorContains(t, err, name)
				require.ErrorContains(t, err, damage.want)
			}
		}
	}
}

func (f *family) rewrite(t *testing.T, dir, name string, change func(weightfile.Tensor) []weightfile.Tensor) {
	f.save(t, dir, func(n string, shape []int) []weightfile.Tensor {
		one := f.unchanged(n, shape)
		if n == name {
			return change(one[0])
		}
		return one
	})
}

func TestTensorsOfAFolderThatAreNotUsed(t *testing.T) {
	pool := newPool(t, 1)
	f := families()[0]
	dir := f.write(t)
	load := func(names ...string) (*model.Model, error) {
		f.rewrite(t, dir, "model.norm.weight", func(norm weightfile.Tensor) []weightfile.Tensor {
			all := []weightfile.Tensor{norm}
			for _, name := range names {
				all = append(all, weightfile.F32(name, []float32{0, 0, 1}, 3))
			}
			return append(all, weightfile.F32("model.layers.0.self_attn.k_proj.bias", make([]float32, 24), 24))
		})
		return model.OpenFolder(dir, pool, model.Part{})
	}
	m, err := load("score.weight", "model.layers.2.mlp.up_proj.weight", "model.layers.0.self_attn.rotary_emb.inv_freq",
		"model.layers.0.self_attn.k_scale", "model.layers.2.mlp.up_proj.bias")
	require.NoError(t, err)
	require.Equal(t, []string{"model.layers.2.mlp.up_proj.bias", "model.layers.2.mlp.up_proj.weight", "score.weight"},
		m.Unused())
	require.NoError(t, m.Close())
	for _, name := range []string{"model.layers.0.self_attn.q_proj.bias", "model.layers.1.input_layernorm.bias",
		"lm_head.bias"} {
		_, err = load(name)
		require.ErrorIs(t, err, model.ErrModel)
		require.ErrorContains(t, err, `the tensor "`+name+`" is not 0; models of the type "llama" have no such bias`)
	}
}
