package cost

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func writeConfig(t *testing.T, name, text string) string {
	path := filepath.Join(t.TempDir(), name, "config.json")
	require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// Ensure that a config.json suffices to describe a model. The number of parameters must be the one on the model's
// page.
func TestConfigsOfHuggingFaceAreRead(t *testing.T) {
	for name, c := range map[string]struct {
		text       string
		parameters int64
		builtIn    string // the same model; "": none
	}{
		"Qwen3-8B": {`{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128, "hidden_size": 4096,
			"intermediate_size": 12288, "max_position_embeddings": 40960, "num_attention_heads": 32,
			"num_hidden_layers": 36, "num_key_value_heads": 8, "sliding_window": null, "tie_word_embeddings": false,
			"use_sliding_window": false, "vocab_size": 151936, "torch_dtype": "bfloat16"}`, 8_190_735_360, "qwen3-8b"},
		"Meta-Llama-3-8B": {`{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
			"max_position_embeddings": 8192, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
			"tie_word_embeddings": false, "vocab_size": 128256}`, 8_030_261_248, "llama-3-8b"},
		"Qwen2.5-0.5B": {`{"architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864,
			"max_position_embeddings": 32768, "num_attention_heads": 14, "num_hidden_layers": 24,
			"num_key_value_heads": 2, "sliding_window": 32768, "tie_word_embeddings": true,
			"use_sliding_window": false, "vocab_size": 151936}`, 494_032_768, "qwen2.5-0.5b"},
		"Mixtral-8x7B-v0.1": {`{"architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
			"max_position_embeddings": 32768, "num_attention_heads": 32, "num_experts_per_tok": 2,
			"num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "sliding_window": null,
			"tie_word_embeddings": false, "vocab_size": 32000}`, 46_702_792_704, "mixtral-8x7b"},
		"Qwen3-30B-A3B": {`{"architectures": ["Qwen3MoeForCausalLM"], "decoder_sparse_step": 1, "head_dim": 128,
			"hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 40960, "mlp_only_layers": [],
			"moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
			"num_hidden_layers": 48, "num_key_value_heads": 4, "tie_word_embeddings": false, "vocab_size": 151936}`,
			30_532_122_624, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := writeConfig(t, name, c.text)
			l := llm(t, path)
			require.Equal(t, c.parameters, l.Parameters)
			require.Equal(t, name, l.Name)
			if c.builtIn != "" {
				same := llm(t, c.builtIn)
				same.Name, same.Source = l.Name, l.Source
				require.Equal(t, same, l)
			}
		})
	}
}

func TestConfigsThatNoModelDescribesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"unknown":   {`{"architectures": ["GptOssForCausalLM"]}`, "[GptOssForCausalLM]; a config.json may be of [LlamaForCausalLM"},
		"quantised": {`{"architectures": ["LlamaForCausalLM"], "quantization_config": {}}`, "--weights"},
		"window": {`{"architectures": ["MistralForCausalLM"], "sliding_window": 4096, "max_position_embeddings": 32768}`,
			"sliding_window is 4096"},
		"dense": {`{"architectures": ["Qwen3MoeForCausalLM"], "mlp_only_layers": [0]}`, "mlp_only_layers is [0]"},
		"empty": {`{"architectures": ["LlamaForCausalLM"]}`, "layers is 0"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := OpenLLM(writeConfig(t, "model", c.text))
			require.ErrorIs(t, err, ErrFile)
			require.ErrorContains(t, err, c.says)
		})
	}
}
