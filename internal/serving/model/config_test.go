package model_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model"
)

const smallLlama = `{"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8, "eos_token_id": `

// The tokens that end a sequence are those of generation_config.json, which has more than config.json
// for models that chat.
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

// Windows are those that transformers' configurations give: of Mistral's layers all have one, of Qwen's those that
// layer_types or max_window_layers name, and of Llama's none.
func TestWhichLayersHaveAWindow(t *testing.T) {
	qwen := func(more map[string]any) map[string]any {
		all := map[string]any{"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 8}
		maps.Copy(all, more)
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
			for _, without := range c.Full {
				if without {
					full++
				}
			}
			require.Equal(t, test.full, full)
		})
	}
}

// What config.json does not state is what transformers' configuration of the family has.
func TestWhatConfigNeedNotState(t *testing.T) {
	for _, test := range []struct {
		kind          string
		theta, eps    float64
		dim           int
		tied          bool
		window, every int // the last of every so many layers has no window; 0: all have it
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
				if test.every > 0 && i%test.every == test.every-1 {
					want = 0
				}
				require.Equal(t, want, c.Window(i), "layer %d", i)
			}
		})
	}
}
