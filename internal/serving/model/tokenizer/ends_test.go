package tokenizer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// endsGGUF has byte tokens with the given texts after them, all of one kind.
func endsGGUF(t *testing.T, kind int32, keys map[string]any, texts ...string) (*Tokenizer, error) {
	tokens := append([]string{"a", "b"}, texts...)
	kinds := []int32{1, 1}
	for range texts {
		kinds = append(kinds, kind)
	}
	all := map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": tokens,
		"tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": []string{}}
	for key, value := range keys {
		all["tokenizer.ggml."+key] = value
	}
	return FromGGUF(meta(t, all))
}

func TestTokensThatEndAnAnswerOfGGUF(t *testing.T) {
	for _, test := range []struct {
		name  string
		kind  int32
		keys  map[string]any
		texts []string
		want  []int32
	}{
		{"keys", 3, map[string]any{"eos_token_id": uint32(2), "eot_token_id": uint32(3), "eom_token_id": uint32(4)},
			[]string{"<x>", "<y>", "<z>"}, []int32{2, 3, 4}},
		{"a list", 3, map[string]any{"eos_token_ids": []int32{2, 3}}, []string{"<x>", "<y>"}, []int32{2, 3}},
		{"Phi-4-mini", 3, map[string]any{"eos_token_id": uint32(2)}, []string{"<|endoftext|>", "<|end|>", "<|user|>"},
			[]int32{2, 3}},
		{"Qwen", 3, map[string]any{"eos_token_id": uint32(2)}, []string{"<|endoftext|>", "<|im_end|>"}, []int32{2, 3}},
		{"Llama 3", 3, nil, []string{"<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"}, []int32{2, 3, 4}},
		{"Llama 2", 3, nil, []string{"<s>", "</s>"}, []int32{3}},
		{"Gemma, whose </s> is a tag of HTML", 4, nil, []string{"<s>", "</s>", "<end_of_turn>", "<eos>"}, []int32{4, 5}},
		{"gpt-oss, where an answer goes on after <|end|>", 3, map[string]any{"eos_token_id": uint32(2)},
			[]string{"<|return|>", "<|call|>", "<|end|>", "<|endoftext|>"}, []int32{2, 3, 5}},
		{"gpt-oss with <|end|> in a key", 3, map[string]any{"eot_token_id": uint32(4)},
			[]string{"<|return|>", "<|call|>", "<|end|>"}, []int32{2, 3}},
		{"of the wrong kind", 1, nil, []string{"<|im_end|>", "</s>"}, []int32{2}},
		{"none", 3, nil, []string{"<x>"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			tokens, err := endsGGUF(t, test.kind, test.keys, test.texts...)
			require.NoError(t, err)
			require.Equal(t, test.want, tokens.Ends())
			for _, id := range test.want {
				require.Equal(t, []int32{0, id, 1}, tokens.Encode("a"+tokens.Text(id)+"b", false))
			}
		})
	}
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		_, err := endsGGUF(t, 3, map[string]any{key: uint32(2)})
		require.ErrorContains(t, err, key+" is 2 of 2")
	}
}

func TestTheTokenThatEndsAnAnswerOfAFolder(t *testing.T) {
	const document = `{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}, "added_tokens": [` +
		`{"id": 2, "content": "<end>", "special": true}]}`
	for _, test := range []struct {
		name  string
		files map[string]string
		want  []int32
	}{
		{"a string", map[string]string{"tokenizer_config.json": `{"eos_token": "<end>"}`}, []int32{2}},
		{"an object", map[string]string{"tokenizer_config.json": `{"eos_token": {"content": "<end>"}}`}, []int32{2}},
		{"null", map[string]string{"tokenizer_config.json": `{"eos_token": null}`}, nil},
		{"no token", map[string]string{"tokenizer_config.json": `{"eos_token": "<none>"}`}, nil},
		{"the older file", map[string]string{"special_tokens_map.json": `{"eos_token": {"content": "<end>"}}`}, []int32{2}},
		{"both", map[string]string{"tokenizer_config.json": `{"eos_token": "<end>"}`,
			"special_tokens_map.json": `{"eos_token": "a"}`}, []int32{2}},
		{"no file", nil, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(document), 0o644))
			for name, text := range test.files {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
			}
			tokens, err := Open(dir)
			require.NoError(t, err)
			require.Equal(t, test.want, tokens.Ends())
		})
	}
}
