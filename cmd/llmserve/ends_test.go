package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/weightfile"
)

// tinyWith writes a GGUF model whose last tokens are control tokens with the given texts.
func tinyWith(t *testing.T, change map[string]any, texts ...string) string {
	tiny := weightfile.Tinies()[0]
	tokens, merges := tiny.Meta["tokenizer.ggml.tokens"].([]string), tiny.Meta["tokenizer.ggml.merges"].([]string)
	kinds := tiny.Meta["tokenizer.ggml.token_type"].([]int32)
	for i, text := range texts {
		at := len(tokens) - len(texts) + i
		tokens[at], kinds[at] = text, 3
	}
	tiny.Meta["tokenizer.ggml.merges"] = merges[:len(merges)-len(texts)]
	for key, value := range change {
		tiny.Meta[key] = value
		if value == nil {
			delete(tiny.Meta, key)
		}
	}
	path := filepath.Join(t.TempDir(), "tiny.gguf")
	require.NoError(t, os.WriteFile(path, tiny.GGUF(), 0o644))
	return path
}

// tinyFolder writes a model with the tokens a, b, <end> and <turn>. Its config.json says that <end> ends an answer.
func tinyFolder(t *testing.T, extraFiles map[string]string) string {
	dir := t.TempDir()
	files := map[string]string{
		"config.json": `{"model_type": "llama", "vocab_size": 4, "hidden_size": 8, "num_hidden_layers": 1,
			"num_attention_heads": 1, "intermediate_size": 8, "eos_token_id": 2}`,
		"tokenizer.json": `{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}, "added_tokens": [
			{"id": 2, "content": "<end>", "special": true}, {"id": 3, "content": "<turn>", "special": true}]}`,
		"model.safetensors": string(tinySafetensors(4)),
	}
	for name, text := range extraFiles {
		files[name] = text
	}
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

func tinySafetensors(vocab int, extraTensors ...string) []byte {
	return tinySafetensorsWithout(vocab, "", extraTensors...)
}

// tinySafetensorsWithout leaves out a tensor.
func tinySafetensorsWithout(vocab int, omitted string, extraTensors ...string) []byte {
	ones := func(name string, shape ...int) weightfile.Tensor {
		return weightfile.F32(name, slices.Repeat([]float32{1}, shape[0]*shape[len(shape)-1]), shape...)
	}
	tensors := []weightfile.Tensor{ones("lm_head.weight", vocab, 8), ones("model.embed_tokens.weight", vocab, 8)}
	for _, name := range append(extraTensors, "model.norm.weight", "model.layers.0.input_layernorm.weight",
		"model.layers.0.post_attention_layernorm.weight") {
		tensors = append(tensors, weightfile.F32(name, slices.Repeat([]float32{1}, 8), 8))
	}
	for _, name := range []string{"self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up",
		"mlp.down"} {
		tensors = append(tensors, ones("model.layers.0."+name+"_proj.weight", 8, 8))
	}
	return weightfile.Safetensors(slices.DeleteFunc(tensors, func(t weightfile.Tensor) bool { return t.Name == omitted })...)
}

// Ensure that an answer ends at the end token in the GGUF file or config.json. It must also end at the end token of a
// chat message, as in llama.cpp and vLLM.
func TestAnAnswerEndsWithTheTokensThatTheStartNames(t *testing.T) {
	for _, test := range []struct {
		name, path, says string
		end              int
	}{
		{"GGUF with an end that no key names", tinyWith(t, nil, "<|endoftext|>", "<|end|>"),
			`an answer ends with "\x00" (0), "<|endoftext|>" (298), "<|end|>" (299)`, 299},
		{"a folder whose tokenizer has another end", tinyFolder(t, map[string]string{
			"tokenizer_config.json": `{"eos_token": {"content": "<turn>"}}`}), `an answer ends with "<end>" (2), "<turn>" (3)`, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, _ := serveModelFile(t, test.path)
			line, err := s.lines.ReadString('\n')
			require.NoError(t, err)
			require.Contains(t, line, test.says)
			ask := func(fields string) string {
				return text(t, s.post(t, "/completions", fmt.Sprintf(`{"model": %q, "prompt": "a", "max_tokens": 5,
					"temperature": 0, "logit_bias": {"%d": 100}%s}`, strings.TrimSuffix(filepath.Base(test.path), ".gguf"), test.end, fields)))
			}
			require.Regexp(t, `"finish_reason":"stop".*"completion_tokens":1\b`, ask(""))
			require.Regexp(t, `"finish_reason":"length".*"completion_tokens":5\b`, ask(`, "ignore_eos": true`))
		})
	}
}

func TestTheStartWarnsOfAFileThatDoesNotSayHowTextIsSplit(t *testing.T) {
	require.Contains(t, runSays(t, tinyWith(t, map[string]any{"tokenizer.ggml.pre": nil})),
		"warning: the file has no tokenizer.ggml.pre")
	require.Empty(t, runSays(t, tinyWith(t, nil)))
}

func TestAdaptersAreNotModels(t *testing.T) {
	const adapter = `{"base_model_name_or_path": "meta/base"}`
	alone := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(alone, "adapter_config.json"), []byte(adapter), 0o644))
	const beside = `give its base model ("meta/base"), and the adapter with --lora-modules NAME=`
	require.Contains(t, refused(t, alone, "--port", "0"), beside+alone)
	require.NotContains(t, refused(t, alone, "--port", "0"), "remove")
	both := refused(t, tinyFolder(t, map[string]string{"adapter_config.json": adapter}), "--port", "0")
	require.Contains(t, both, beside)
	require.Contains(t, both, "to serve the model of this folder, remove adapter_config.json")
	require.Contains(t, refused(t, tinyWith(t, map[string]any{"general.type": "adapter"}), "--port", "0"),
		"the file is an adapter (LoRA)")
}
