package tokenizer

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/weightfile"
)

func init() { level.CollectLess() }

func visible(b byte) string {
	for r, v := range byteOf {
		if v == b {
			return string(r)
		}
	}
	panic("no character")
}

// gpt2Merges are the first merges of GPT-2's vocabulary. As in GPT-2, the tokens that they make are numbered from
// 256 on.
var gpt2Merges = []string{"Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "Ġt he", "e r", "Ġ s", "a t", "Ġ w", "Ġ o", "e n",
	"Ġ c", "i t", "i s", "a n"}

// gpt2Vocab returns the part of GPT-2's vocabulary with the bytes and the results of gpt2Merges. The printable bytes
// have the first numbers.
func gpt2Vocab() map[string]int {
	vocab, next := map[string]int{}, 0
	for _, seen := range []bool{true, false} {
		for b := range 256 {
			s := visible(byte(b))
			if r := []rune(s)[0]; (r < 256) == seen {
				vocab[s] = next
				next++
			}
		}
	}
	for i, m := range gpt2Merges {
		vocab[strings.ReplaceAll(m, " ", "")] = 256 + i
	}
	return vocab
}

func document2json(t testing.TB, d map[string]any) []byte {
	data, err := json.Marshal(d)
	require.NoError(t, err)
	return data
}

func gpt2JSON(t testing.TB) []byte {
	return document2json(t, map[string]any{
		"added_tokens": []map[string]any{{"id": 300, "content": "<|endoftext|>", "special": true},
			{"id": 301, "content": "<|end|>", "special": true, "lstrip": true, "rstrip": true}},
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"model":         map[string]any{"type": "BPE", "vocab": gpt2Vocab(), "merges": gpt2Merges},
	})
}

// llamaVocab returns a vocabulary with the structure of Llama 2's: three special tokens, the bytes,
// then pieces.
func llamaVocab() (pieces []string, merges []string) {
	pieces = []string{"<unk>", "<s>", "</s>"}
	for b := range 256 {
		pieces = append(pieces, fmt.Sprintf("<0x%02X>", b))
	}
	merges = []string{"▁ h", "l l", "▁h e", "ll o", "▁he llo", "▁ ▁"}
	pieces = append(pieces, "▁h", "ll", "▁he", "llo", "▁hello", "▁▁", "▁", "h", "e", "l", "o", "ü")
	return pieces, merges
}

func llamaJSON(t testing.TB) []byte {
	pieces, merges := llamaVocab()
	vocab := map[string]int{}
	for i, p := range pieces {
		vocab[p] = i
	}
	return document2json(t, map[string]any{
		"added_tokens": []map[string]any{{"id": 0, "content": "<unk>", "special": true},
			{"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "</s>", "special": true}},
		"normalizer": map[string]any{"type": "Sequence", "normalizers": []map[string]any{
			{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": map[string]any{"String": " "}, "content": "▁"},
		}},
		"pre_tokenizer": nil,
		"post_processor": map[string]any{"type": "TemplateProcessing", "single": []map[string]any{
			{"SpecialToken": map[string]any{"id": "<s>", "type_id": 0}}, {"Sequence": map[string]any{"id": "A", "type_id": 0}},
		}},
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": "<unk>", "fuse_unk": true,
			"byte_fallback": true},
	})
}

func parsed(t testing.TB, data []byte) *Tokenizer {
	tok, err := Parse(data)
	require.NoError(t, err)
	return tok
}

func TestByteLevelTokensAreGPT2s(t *testing.T) {
	tests := []struct {
		name, text string
		want       []int32
	}{
		{"the first word of all", " the", []int32{262}},
		{"without a space", "the", []int32{83, 258}},
		{"words apart", " the the", []int32{262, 262}},
		{"spaces before a word", "   the", []int32{220, 220, 262}},
		{"a letter of two bytes", "é", []int32{127, 102}},
		{"an added token", "in<|endoftext|>on", []int32{259, 300, 261}},
		{"an added token that takes the space beside it", "in <|end|> \n on", []int32{259, 301, 261}},
		{"ranks decide, not places", "here", []int32{258, 260}},
		{"nothing", "", nil},
	}
	dir := t.TempDir()
	vocab := gpt2Vocab()
	vocab["<|endoftext|>"] = 300
	require.NoError(t, os.WriteFile(filepath.Join(dir, "vocab.json"), must(json.Marshal(vocab)), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "merges.txt"),
		[]byte("#version: 0.2\n"+strings.Join(gpt2Merges, "\n")+"\n"), 0o644))
	files, err := Open(dir)
	require.NoError(t, err)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, parsed(t, gpt2JSON(t)).Encode(test.text, true))
			if !strings.Contains(test.text, "<|end|>") {
				require.Equal(t, test.want, files.Encode(test.text, true))
			}
		})
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

func TestSentencePieceTokensAreThoseOfTheFile(t *testing.T) {
	tok := parsed(t, llamaJSON(t))
	require.Equal(t, []int32{1}, tok.first)
	require.Equal(t, []int32{1, 263}, tok.Encode("hello", true))
	require.Equal(t, []int32{263}, tok.Encode("hello", false))
	require.Equal(t, []int32{1, 265, 3 + 'x', 229, 133, 175}, tok.Encode("x€", true))
	require.Equal(t, []int32{1, 265, 270}, tok.Encode("ü", true))
	require.Equal(t, []int32{1, 263, 2, 263}, tok.Encode("hello</s>hello", true))
	require.Equal(t, []int32{1, 265, 263}, tok.Encode(" hello", true))
	require.Equal(t, " hello", tok.Decode([]int32{1, 263, 2}))
	require.True(t, tok.Special(1))
	require.False(t, tok.Special(263))
}

func meta(t testing.TB, values map[string]any) map[string]weights.Value {
	path := filepath.Join(t.TempDir(), "t.gguf")
	require.NoError(t, os.WriteFile(path, weightfile.GGUF(values), 0o644))
	g, err := weights.OpenGGUF(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g.Meta
}

func llamaGGUF(t testing.TB) map[string]weights.Value {
	pieces, merges := llamaVocab()
	kinds, scores := make([]int32, len(pieces)), make([]float32, len(pieces))
	for i := range pieces {
		switch {
		case i == 0:
			kinds[i] = 2
		case i < 3:
			kinds[i] = 3
		case i < 259:
			kinds[i] = 6
		default:
			kinds[i], scores[i] = 1, -100
		}
		for rank, m := range merges {
			if strings.ReplaceAll(m, " ", "") == pieces[i] {
				scores[i] = -float32(rank)
			}
		}
	}
	return meta(t, map[string]any{
		"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.scores": scores,
		"tokenizer.ggml.token_type":   kinds,
		"tokenizer.ggml.bos_token_id": uint32(1), "tokenizer.ggml.eos_token_id": uint32(2),
		"tokenizer.ggml.unknown_token_id": uint32(0),
	})
}

func gpt2GGUF(t testing.TB) map[string]weights.Value {
	tokens := make([]string, 301)
	kinds := make([]int32, 301)
	for text, id := range gpt2Vocab() {
		tokens[id], kinds[id] = text, 1
	}
	for i := range tokens {
		if tokens[i] == "" {
			tokens[i], kinds[i] = fmt.Sprintf("<unused%d>", i), 3
		}
	}
	tokens[300] = "<|endoftext|>"
	return meta(t, map[string]any{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
		"tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": gpt2Merges, "tokenizer.ggml.eos_token_id": uint32(300),
	})
}

func texts(n int) []string {
	rnd := rand.New(rand.NewPCG(4, 5))
	words := []string{"hello", " the", "he", "l", "o", " ", "  ", "\n", "ü", "€", "日本", "x1", "</s>", "'ll", "here",
		"\u0301", "<0x41>"}
	var all []string
	for range n {
		var b strings.Builder
		for range rnd.IntN(12) {
			b.WriteString(words[rnd.IntN(len(words))])
		}
		all = append(all, b.String())
	}
	return all
}

func TestGGUFHasTheSameTokens(t *testing.T) {
	llama, err := FromGGUF(llamaGGUF(t))
	require.NoError(t, err)
	gpt2, err := FromGGUF(gpt2GGUF(t))
	require.NoError(t, err)
	for _, text := range texts(300) {
		require.Equal(t, parsed(t, llamaJSON(t)).Encode(text, true), llama.Encode(text, true), "%q", text)
		require.Equal(t, parsed(t, gpt2JSON(t)).Encode(text, true), gpt2.Encode(text, true), "%q", text)
	}
}

func TestDecodingGivesTheTextBack(t *testing.T) {
	gpt2, llama := parsed(t, gpt2JSON(t)), parsed(t, llamaJSON(t))
	for _, text := range texts(300) {
		text = strings.ReplaceAll(text, "</s>", "")
		require.Equal(t, text, gpt2.Decode(gpt2.Encode(text, true)))
		if text != "" {
			require.Equal(t, " "+text, llama.Decode(llama.Encode(text, true)))
		}
	}
}

// plain merges the pair with the smallest rank, the leftmost first, until no pair can be merged.
func plain(t *Tokenizer, text string) []int32 {
	ids := []int32{}
	for i := range len(text) {
		ids = append(ids, t.ids[text[i:i+1]])
	}
	for {
		index, best := -1, merge{rank: 1 << 30}
		for i := 0; i+1 < len(ids); i++ {
			if m, ok := t.merges[pair{ids[i], ids[i+1]}]; ok && m.rank < best.rank {
				index, best = i, m
			}
		}
		if index < 0 {
			return ids
		}
		ids = append(append(append([]int32{}, ids[:index]...), best.id), ids[index+2:]...)
	}
}

func TestAddedTokensOfSentencePieceAreMadeByMerging(t *testing.T) {
	tok, err := FromGGUF(meta(t, map[string]any{
		"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": []string{"<unk>", "▁", "▁▁", "▁▁▁", "a", "▁a", "\n", "\n\n"},
		"tokenizer.ggml.scores": []float32{0, -3, -1000, -1000, -4, -2, -5, -1000}, "tokenizer.ggml.add_space_prefix": false,
		"tokenizer.ggml.token_type": []int32{2, 1, 4, 4, 1, 1, 1, 4}, "tokenizer.ggml.unknown_token_id": uint32(0),
	}))
	require.NoError(t, err)
	require.Equal(t, []int32{4, 2, 5, 7, 6, 3, 5}, tok.Encode("a   a\n\n\n    a", false))
	require.Equal(t, "a   a", tok.Decode([]int32{4, 2, 5}))
}

func TestTokenizersThatCannotBeUsedAreRefused(t *testing.T) {
	tests := []struct{ name, json, want string }{
		{"no JSON", "{", "unexpected end"},
		{"WordPiece", `{"model": {"type": "WordPiece"}}`, `"WordPiece"`},
		{"no vocabulary", `{"model": {"type": "BPE", "vocab": {}}}`, "no vocabulary"},
		{"a normalizer", `{"normalizer": {"type": "Lowercase"}, "model": {"type": "BPE", "vocab": {"a": 0}}}`,
			`the normalizer "Lowercase"`},
		{"a pre-tokenizer", `{"pre_tokenizer": {"type": "Whitespace"}, "model": {"type": "BPE", "vocab": {"a": 0}}}`,
			`the pre-tokenizer "Whitespace"`},
		{"a merge of what is not there", `{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}`,
			`merge 0 of "a" and "b"`},
		{"a merge of three", `{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "a", "a"]]}}`,
			"merge 0 has 3 parts"},
		{"a negative token", `{"model": {"type": "BPE", "vocab": {"a": -1}}}`, "token -1"},
		{"a huge token", `{"model": {"type": "BPE", "vocab": {"a": 1000000000}}}`, "token 1000000000"},
		{"a template with an unknown token",
			`{"model": {"type": "BPE", "vocab": {"a": 0}}, "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}]}}`, `"<s>", which is not a token`},
		{"a pattern that is none", `{"model": {"type": "BPE", "vocab": {"a": 0}}, "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}}`, `the pattern "("`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := Parse([]byte(test.json))
			require.ErrorIs(t, err, ErrFormat)
			require.ErrorContains(t, err, test.want)
		})
	}
	_, err := Open(t.TempDir())
	require.ErrorIs(t, err, ErrFormat)
	_, err = FromGGUF(nil)
	require.ErrorIs(t, err, ErrFormat)
}

// What tokenizer.json says beside the vocabulary is done.
func TestSettingsOfATokenizerAreFollowed(t *testing.T) {
	const letters = `"a": 0, "b": 1, "ab": 2, "▁": 3, "▁a": 4, "é": 5, "<x>": 6`
	for _, test := range []struct {
		name, settings, text string
		want                 []int32
	}{
		{"merges", `"model": {"vocab": {%s}, "merges": []}`, "ab", []int32{0, 1}},
		{"ignore_merges", `"model": {"vocab": {%s}, "merges": [], "ignore_merges": true}`, "ab", []int32{2}},
		{"NFC", `"normalizer": {"type": "NFC"}, "model": {"vocab": {%s}}`, "e\u0301", []int32{5}},
		{"a space before each part",
			`"pre_tokenizer": {"type": "Metaspace", "split": false}, "added_tokens": [{"id": 6, "content": "<x>"}], "model": {"vocab": {%s}}`, "b<x>b", []int32{3, 1, 6, 3, 1}},
		{"a space before the first part",
			`"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "first", "split": false}, "added_tokens": [{"id": 6, "content": "<x>"}], "model": {"vocab": {%s}}`, "b<x>b", []int32{3, 1, 6, 1}},
		{"no space", `"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "never", "split": false}, "model": {"vocab": {%s}}`, "b", []int32{1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			tok := parsed(t, []byte("{"+fmt.Sprintf(test.settings, letters)+"}"))
			require.Equal(t, test.want, tok.Encode(test.text, true))
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(gpt2JSON(f))
	f.Add(llamaJSON(f))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if tok, err := Parse(data); err == nil && len(tok.patterns) == 0 {
			tok.Decode(tok.Encode("hello the ü", true))
		}
	})
}
