package tokenizer

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/model/marks"
)

// guarded has letters as tokens, and <e>, which merging would make, too, as a control token; <t> is not special.
func guarded(t *testing.T, whole string) *Tokenizer {
	tok, err := FromGGUF(meta(t, map[string]any{
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": whole,
		"tokenizer.ggml.tokens":     []string{"a", "<", "e", ">", "t", "<e", "<|end|>", "<t>", "<|im_end|>", "|", "n", "d", "<|"},
		"tokenizer.ggml.token_type": []int32{1, 1, 1, 1, 1, 1, 3, 4, 1, 1, 1, 1, 1},
		"tokenizer.ggml.merges":     []string{"< e", "< |"},
	}))
	require.NoError(t, err)
	return tok
}

// A text is made of a template's parts and a client's. Tokens that are protected stand in the template's parts only; the
// pieces of all tokens are the text; and a text without marks has the tokens that Encode finds.
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

// A special token that is also in the vocabulary of words, or the result of a merge, is not made of marked text.
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
