package lora_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model/lora"
	"llmmemory/internal/testkit/weightfile"
)

const query, value = "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj"

func ones(name string, rows, cols int) weightfile.Tensor {
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = 1
	}
	return weightfile.F32(name, v, rows, cols)
}

// pair returns A and B of a module in a folder, for 8 inputs and 6 outputs.
func pair(module string, rank int) []weightfile.Tensor {
	return []weightfile.Tensor{ones("base_model.model."+module+".lora_A.weight", rank, 8), ones("base_model.model."+module+".lora_B.weight", 6, rank)}
}

// folder writes an adapter of rank 4 with an alpha of 6. A value of nil removes a field.
func folder(t *testing.T, change map[string]any, tensors ...weightfile.Tensor) string {
	dir, config := t.TempDir(), map[string]any{"peft_type": "LORA", "r": 4, "lora_alpha": 6, "target_modules": []string{"q_proj"}, "bias": "none"}
	maps.Copy(config, change)
	for name, v := range config {
		if v == nil {
			delete(config, name)
		}
	}
	data, err := json.Marshal(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_config.json"), data, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_model.safetensors"), weightfile.Safetensors(tensors...), 0o644))
	return dir
}

func gguf(t *testing.T, change map[string]any, tensors ...weightfile.Tensor) string {
	path, meta := filepath.Join(t.TempDir(), "a.gguf"), map[string]any{"general.type": "adapter", "general.architecture": "llama",
		"adapter.type": "lora", "adapter.lora.alpha": float32(6)}
	maps.Copy(meta, change)
	for name, v := range meta {
		if v == nil {
			delete(meta, name)
		}
	}
	require.NoError(t, os.WriteFile(path, weightfile.GGUF(meta, tensors...), 0o644))
	return path
}

func open(t *testing.T, path string) *lora.Adapter {
	a, err := lora.Open(path, 64)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

func TestModulesOfAFolder(t *testing.T) {
	a := open(t, folder(t, map[string]any{"use_dora": false, "modules_to_save": nil, "rank_pattern": map[string]int{}, "layer_replication": nil,
		"eva_config": map[string]any{"rho": 2}, "init_lora_weights": "gaussian", "fan_in_fan_out": true, "peft_version": "0.18.0"}, pair(query, 4)...))
	require.Equal(t, []string{query}, a.Names())
	m := a.Modules[query]
	require.Equal(t, []int{4, 8, 6, 4}, []int{m.A.Rows, m.A.Cols, m.B.Rows, m.B.Cols})
	require.EqualValues(t, 1.5, m.Scale)
	require.Empty(t, a.Architecture)
}

// In PEFT, the first key of a pattern that matches the end of a module's name counts.
func TestTheFirstPatternCounts(t *testing.T) {
	for text, want := range map[string]float32{
		`{"q_proj": 8, "layers.0.self_attn.q_proj": 12}`: 2, `{"layers.0.self_attn.q_proj": 12, "q_proj": 8}`: 3,
		`{"_proj": 8}`: 1.5, `{"^model.layers.0.self_attn.q_proj": 2}`: 0.5, `{"v_proj|q_proj": 20}`: 5,
	} {
		a := open(t, folder(t, map[string]any{"alpha_pattern": json.RawMessage(text)}, pair(query, 4)...))
		require.Equal(t, want, a.Modules[query].Scale, text)
	}
}

func TestModulesOfAGGUFFile(t *testing.T) {
	tensors := []weightfile.Tensor{ones("blk.0.attn_q.weight.lora_a", 4, 8), ones("blk.0.attn_q.weight.lora_b", 6, 4)}
	a := open(t, gguf(t, nil, tensors...))
	require.Equal(t, "llama", a.Architecture)
	require.EqualValues(t, 1.5, a.Modules["blk.0.attn_q"].Scale)
	a = open(t, gguf(t, map[string]any{"adapter.lora.alpha": float32(0)}, tensors...))
	require.EqualValues(t, 1, a.Modules["blk.0.attn_q"].Scale, "as in llama.cpp")
}

func TestFingerprintsTellAdaptersApart(t *testing.T) {
	changed := pair(query, 4)
	changed[0].Data = append([]byte{}, changed[0].Data...)
	changed[0].Data[5]++
	seen := map[string]bool{}
	for _, path := range []string{
		folder(t, nil, pair(query, 4)...), folder(t, nil, changed...), folder(t, map[string]any{"lora_alpha": 7}, pair(query, 4)...),
		folder(t, nil, pair(value, 4)...),
	} {
		seen[open(t, path).Fingerprint()] = true
	}
	require.Len(t, seen, 4)
	require.True(t, seen[open(t, folder(t, nil, pair(query, 4)...)).Fingerprint()])
}

func TestWhatAnAdapterLacks(t *testing.T) {
	names := []string{query, value}
	for _, test := range []struct {
		change map[string]any
		want   string
	}{
		{nil, ""},
		{map[string]any{"target_modules": []string{"q_proj", "v_proj"}}, value},
		{map[string]any{"target_modules": []string{"q_proj", "w1"}}, "w1"},
		{map[string]any{"target_modules": []string{"q_proj", "v_proj"}, "exclude_modules": []string{"layers.0.self_attn.v_proj"}}, ""},
		{map[string]any{"target_modules": []string{"q_proj", "v_proj"}, "layers_to_transform": 0}, ""},
		{map[string]any{"target_modules": "all-linear"}, ""},
	} {
		require.Equal(t, test.want, open(t, folder(t, test.change, pair(query, 4)...)).Missing(names), "%v", test.change)
	}
}

func TestFoldersThatAreRefused(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  map[string]any
		tensors []weightfile.Tensor
		want    string
	}{
		{"another method", map[string]any{"peft_type": "IA3"}, nil, `peft_type of adapter_config.json is "IA3"; LORA is supported`},
		{"DoRA", map[string]any{"use_dora": true}, nil, "use_dora true (DoRA), which is not supported"},
		{"modules_to_save", map[string]any{"modules_to_save": []string{"lm_head"}}, nil, `modules_to_save ["lm_head"]`},
		{"bias", map[string]any{"bias": "lora_only"}, nil, `bias "lora_only"`},
		{"lora_bias", map[string]any{"lora_bias": true}, nil, "lora_bias true"},
		{"parameters", map[string]any{"target_parameters": []string{"experts.gate_up_proj"}}, nil, "target_parameters"},
		{"tokens", map[string]any{"trainable_token_indices": map[string]any{"embed_tokens": []int{1}}}, nil, "trainable_token_indices"},
		{"replicated layers", map[string]any{"layer_replication": [][]int{{0, 1}}}, nil, "layer_replication"},
		{"aLoRA", map[string]any{"alora_invocation_tokens": []int{1}}, nil, "alora_invocation_tokens [1]"},
		{"PiSSA", map[string]any{"init_lora_weights": "pissa_niter_16"}, nil, `init_lora_weights "pissa_niter_16"`},
		{"no rank", map[string]any{"r": 0}, nil, "r of adapter_config.json is 0"},
		{"a text as rank", map[string]any{"r": "4"}, nil, "adapter_config.json: json: cannot unmarshal string"},
		{"a pattern that is no object", map[string]any{"rank_pattern": []int{1}}, nil, "rank_pattern and alpha_pattern are objects"},
		{"a pattern that looks ahead", map[string]any{"rank_pattern": map[string]int{"(?!k)q_proj": 4}}, nil, "is not a regular expression that is supported"},
		{"a rank that is no integer", map[string]any{"rank_pattern": map[string]float64{"q_proj": 1.5}}, nil, "rank_pattern of adapter_config.json has the rank 1.5"},
		{"another rank", map[string]any{"r": 5}, pair(query, 4), `lora_A.weight" has the rank 4; by r and rank_pattern of adapter_config.json it is 5`},
		{"ranks that differ", nil, []weightfile.Tensor{pair(query, 4)[0], pair(query, 3)[1]}, "has the rank 4 (its rows)"},
		{"a rank that is too large", map[string]any{"r": 65}, pair(query, 65), "has the rank 65, and --max-lora-rank is 64; give a larger one"},
		{"no B", nil, pair(query, 4)[:1], `lora_A.weight", and not the tensor .lora_B.weight for it`},
		{"no A", nil, pair(query, 4)[1:], `lora_B.weight", and not the tensor .lora_A.weight for it`},
		{"no tensors", nil, nil, "has no tensors"},
		{"a magnitude", nil, append(pair(query, 4), ones("base_model.model."+query+".lora_magnitude_vector", 1, 6)), "lora_magnitude_vector"},
		{"embeddings", nil, []weightfile.Tensor{ones("base_model.model.model.embed_tokens.lora_embedding_A", 4, 8)}, "lora_embedding_A"},
		{"integers", nil, append(pair(query, 4), weightfile.Tensor{Name: "x.lora_A.weight", DType: "I64", Shape: []int{1, 1}, Data: make([]byte, 8)}),
			`"x.lora_A.weight" is of type I64`},
		{"one matrix twice", nil, append(pair(query, 4), ones(query+".lora_A.weight", 4, 8)), "are for the same matrix"},
		{"an infinite scale", map[string]any{"lora_alpha": 1e300}, pair(query, 4), "the scale of"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := lora.Open(folder(t, test.change, test.tensors...), 64)
			require.ErrorIs(t, err, lora.ErrAdapter)
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestGGUFFilesThatAreRefused(t *testing.T) {
	tensors := []weightfile.Tensor{ones("blk.0.attn_q.weight.lora_a", 4, 8), ones("blk.0.attn_q.weight.lora_b", 6, 4)}
	for _, test := range []struct {
		name   string
		change map[string]any
		want   string
	}{
		{"a model", map[string]any{"general.type": "model"}, `is not an adapter: its general.type is "model"`},
		{"another adapter", map[string]any{"adapter.type": "control_vector"}, `adapter.type of`},
		{"no architecture", map[string]any{"general.architecture": nil}, "no general.architecture"},
		{"no alpha", map[string]any{"adapter.lora.alpha": nil}, "has no adapter.lora.alpha"},
		{"aLoRA", map[string]any{"adapter.alora.invocation_tokens": []int32{1}}, "aLoRA"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := lora.Open(gguf(t, test.change, tensors...), 64)
			require.ErrorIs(t, err, lora.ErrAdapter)
			require.ErrorContains(t, err, test.want)
		})
	}
	_, err := lora.Open(gguf(t, nil, ones("blk.0.attn_q.weight", 4, 8)), 64)
	require.ErrorContains(t, err, `"blk.0.attn_q.weight" is not supported`)
}

func TestPathsThatHaveNoAdapter(t *testing.T) {
	empty := t.TempDir()
	_, err := lora.Open(empty, 64)
	require.ErrorContains(t, err, "has no adapter_config.json; an adapter is a folder of PEFT or a GGUF file")
	_, err = lora.Open(filepath.Join(empty, "x"), 64)
	require.ErrorContains(t, err, "no such file")
	dir := folder(t, nil)
	require.NoError(t, os.Rename(filepath.Join(dir, "adapter_model.safetensors"), filepath.Join(dir, "adapter_model.bin")))
	_, err = lora.Open(dir, 64)
	require.ErrorContains(t, err, "adapter_model.bin is not read; save the adapter as safetensors")
	require.NoError(t, os.Remove(filepath.Join(dir, "adapter_model.bin")))
	_, err = lora.Open(dir, 64)
	require.ErrorContains(t, err, "adapter_model.safetensors is not in")
}

// Ensure that a number that is not finite, as Python writes it, is refused by the field that needs it, and only there.
func TestNumbersOfPythonInConfigs(t *testing.T) {
	for number, want := range map[string]string{`"unknown": [NaN, Infinity]`: "", `"lora_alpha": Infinity`: "lora_alpha is Infinity"} {
		dir := folder(t, map[string]any{"lora_alpha": nil}, pair(query, 4)...)
		path := filepath.Join(dir, "adapter_config.json")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, bytes.Replace(text, []byte("{"), []byte("{"+number+","), 1), 0o644))
		if want == "" {
			open(t, dir)
			continue
		}
		_, err = lora.Open(dir, 64)
		require.ErrorContains(t, err, want)
	}
}
