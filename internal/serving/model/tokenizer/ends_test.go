package tokenizer

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/model/marks"
)

// endsGGUF returns a tokenizer with the tokens a and b. After them it has texts as tokens of the given kind.
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

// guarded returns a tokenizer with the pre-tokenizer pre. <|end|> and <|im_end|> are special tokens. <t> is an added
// token that is not special. The other tokens are letters, signs, <e and <|.
func guarded(t *testing.T, pre string) *Tokenizer {
	tok, err := FromGGUF(meta(t, map[string]any{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre,
		"tokenizer.ggml.tokens":     []string{"a", "<", "e", ">", "t", "<e", "<|end|>", "<t>", "<|im_end|>", "|", "n", "d", "<|"},
		"tokenizer.ggml.token_type": []int32{1, 1, 1, 1, 1, 1, 3, 4, 1, 1, 1, 1, 1},
		"tokenizer.ggml.merges":     []string{"< e", "< |"},
	}))
	require.NoError(t, err)
	return tok
}

// Ensure that only unmarked text becomes the token <|end|>, and that the pieces of all tokens add up to the text. If no
// text is marked, EncodeMarked must return the same tokens as Encode.
func TestProtectedTokensAreOnlyThoseOfTheTemplate(t *testing.T) {
	for _, pre := range []string{"gpt-2", "llama-bpe"} {
		tok := guarded(t, pre)
		require.Equal(t, []rune("<>"), tok.Edges())
		rapid.Check(t, func(t *rapid.T) {
			parts := rapid.SliceOfN(rapid.SampledFrom([]string{"<|end|>", "<|", "end", "|>", "<t>", "a", "<", ">", "<e>"}), 1, 8).
				Draw(t, "parts")
			m, err := marks.New(tok.Edges(), slices.Values(parts), "")
			require.NoError(t, err)
			text, ends := "", 0
			for _, part := range parts {
				if rapid.Bool().Draw(t, "client") {
					part = m.Mark(part)
				}
				text += part
			}
			ends = strings.Count(text, "<|end|>")
			got, err := tok.EncodeMarked(t.Context(), text, m, false, math.MaxInt)
			require.NoError(t, err)
			var pieces strings.Builder
			for _, id := range got {
				pieces.Write(tok.Piece(id))
				if id == 6 {
					ends--
				}
			}
			require.Equal(t, m.Plain(text), pieces.String())
			require.Zero(t, ends)
			got, err = tok.EncodeMarked(t.Context(), strings.Join(parts, ""), nil, false, math.MaxInt)
			require.NoError(t, err)
			require.Equal(t, tok.Encode(strings.Join(parts, ""), false), got)
		})
	}
}

// Ensure that marked text never becomes a special token, even if the token is also in the vocabulary
// of words or is the result of a merge.
func TestNoWordBecomesASpecialToken(t *testing.T) {
	for _, document := range []string{
		`{"model": {"vocab": {"<": 0, "e": 1, ">": 2, "<e": 3, "<e>": 4}, "merges": ["< e", "<e >"]},
			"added_tokens": [{"id": 4, "content": "<e>", "special": true}]}`,
		`{"model": {"vocab": {"<": 0, "e": 1, ">": 2, "<e>": 4}, "merges": [], "ignore_merges": true},
			"added_tokens": [{"id": 4, "content": "<e>", "special": true}]}`,
	} {
		tok, err := Parse([]byte(document))
		require.NoError(t, err)
		tok.seal()
		m, err := marks.New(tok.Edges(), slices.Values([]string{"<e>"}), "")
		require.NoError(t, err)
		got, err := tok.EncodeMarked(t.Context(), "<e>"+m.Mark("<e>"), m, false, math.MaxInt)
		require.NoError(t, err)
		require.Equal(t, int32(4), got[0])
		require.NotContains(t, got[1:], int32(4))
	}
}

func TestEdgesAreSignsOfSpecialTokens(t *testing.T) {
	for text, want := range map[string]string{"<|end|>": "<>", "[INST]": "[]", "Human:": ":", "EOT": "E", " <s> ": "<>", "é": "é"} {
		tok := blank()
		tok.enter(0, []byte(text), true)
		tok.added.add(text, 0, strip{})
		require.Equal(t, []rune(want), tok.Edges(), text)
	}
}
