package model_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/model"
	"llmmemory/internal/parallel"
	"llmmemory/internal/testkit/weightfile"
)

// What cannot be computed is refused with what was found, before weights are read.
func TestConfigurationsThatAreNotSupportedAreRefused(t *testing.T) {
	tests := []struct {
		name   string
		change map[string]any
		want   string
	}{
		{"another family", map[string]any{"model_type": "mamba"}, `model_type is "mamba"`},
		{"another activation", map[string]any{"hidden_act": "gelu"}, `hidden_act is "gelu"`},
		{"another rope scaling", map[string]any{"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4}}, `rope scaling of type "yarn"`},
		{"llama3 scaling without its settings", map[string]any{"rope_scaling": map[string]any{"rope_type": "llama3", "factor": 4}}, "llama3 rope scaling"},
		{"heads that do not divide", map[string]any{"num_attention_heads": 5}, "5 query heads on 3 key heads"},
		{"no layers", map[string]any{"num_hidden_layers": 0}, "num_hidden_layers is 0"},
		{"an absurd size", map[string]any{"vocab_size": 1 << 40}, "vocab_size"},
		{"heads too large", map[string]any{"head_dim": 512}, "heads of 512 elements"},
		{"no such end", map[string]any{"eos_token_id": 97}, "end of sequence is token 97 of 97"},
		{"end of no type", map[string]any{"eos_token_id": "x"}, "eos_token_id"},
		{"layers with and without a window", map[string]any{"model_type": "qwen2", "use_sliding_window": true}, "use_sliding_window"},
		{"epsilon", map[string]any{"rms_norm_eps": 2.0}, "epsilon"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			config := families()[0].config
			for k, v := range test.change {
				config[k] = v
			}
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

// Tensors that are missing or have another shape are named.
func TestTensorsThatDoNotFitAreNamed(t *testing.T) {
	pool, err := parallel.New(1)
	require.NoError(t, err)
	defer pool.Close()
	for _, f := range families() {
		shapes := f.tensors()
		dir := f.write(t)
		for _, name := range []string{firstName(shapes), "model.layers.1.mlp.down_proj.weight"} {
			if shapes[name] == nil {
				continue
			}
			for _, wrong := range []bool{false, true} {
				var tensors []weightfile.Tensor
				for n, shape := range shapes {
					values := f.ref.w[n]
					if n == name {
						if !wrong {
							continue
						}
						shape, values = []int{3, 1}, values[:3]
					}
					tensors = append(tensors, weightfile.F32(n, values, shape...))
				}
				require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), weightfile.Safetensors(tensors...), 0o644))
				_, err := model.OpenFolder(dir, pool, model.Part{})
				require.ErrorIs(t, err, model.ErrModel)
				require.ErrorContains(t, err, name)
			}
		}
	}
}

// firstName is a tensor that every run leaves out: the least name.
func firstName(shapes map[string][]int) string {
	least := ""
	for name := range shapes {
		if least == "" || name < least {
			least = name
		}
	}
	return least
}
