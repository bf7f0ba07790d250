package tokenizer

import (
	"context"
	"math"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// drawn draws a vocabulary of texts that consist of a and b, with random merges or scores. Its unknown token is "?",
// and the letter c has no token.
func drawn(t *rapid.T) *Tokenizer {
	tok := blank()
	add := func(text string) {
		if _, ok := tok.ids[text]; !ok {
			tok.ids[text] = int32(len(tok.pieces))
			tok.enter(len(tok.pieces), []byte(text), false)
		}
	}
	add("a")
	add("b")
	add("?")
	tok.unknown = 2
	if rapid.Bool().Draw(t, "scores") {
		tok.characters = true
		for range rapid.IntRange(0, 12).Draw(t, "pieces") {
			add(rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 2, 5, -1).Draw(t, "piece"))
		}
		for range tok.pieces {
			tok.scores = append(tok.scores, float32(rapid.IntRange(-4, 0).Draw(t, "score")))
		}
		return tok
	}
	tok.merges = map[pair]merge{}
	for rank := range rapid.IntRange(0, 12).Draw(t, "merges") {
		one := rapid.Map(rapid.IntRange(0, len(tok.pieces)-1), func(i int) string { return string(tok.pieces[i]) })
		left, right := one.Draw(t, "left"), one.Draw(t, "right")
		if add(left + right); tok.ids[left] != 2 && tok.ids[right] != 2 {
			_ = tok.merge(rank, []string{left, right})
		}
	}
	return tok
}

// Ensure that merging in windows gives the same tokens as merging at once, for any merges.
func TestALongWordHasTheTokensOfTheWholeWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tok := drawn(t)
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ababababc")), 1, 60, -1).Draw(t, "text")
		if n := rapid.IntRange(1, 6).Draw(t, "period"); n < 5 {
			text = strings.Repeat(text[:min(n, len(text))], 60)[:len(text)] // chains of merges
		}
		cut := func(window int) []int32 {
			e := encoder{t: tok, ctx: context.Background(), limit: math.MaxInt, window: window}
			e.word(text)
			return e.out
		}
		whole := cut(len(text))
		require.Equal(t, whole, cut(rapid.IntRange(1, 12).Draw(t, "window")))
		if tok.merges != nil && !strings.Contains(text, "c") {
			require.Equal(t, plain(tok, text), whole)
		}
	})
}

// Ensure that the bytes of a long word are split into symbols only a few times, for any merges and any repeated text.
func TestALongWordIsMergedInLinearWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tok := drawn(t)
		part := rapid.StringOfN(rapid.RuneFrom([]rune("ababababc")), 1, 8, -1).Draw(t, "part")
		text := strings.Repeat(part, 1000)
		e := encoder{t: tok, ctx: context.Background(), limit: math.MaxInt, window: 16}
		e.word(text)
		require.LessOrEqual(t, e.split, 8*len(text), "%q", part)
	})
}

// tokenizers returns a tokenizer of each kind, and further tokenizers with NFC and with an unknown token. With NFC or
// an unknown token, one token can stand for more bytes of text than the longest token of the vocabulary has.
func tokenizers(t testing.TB) map[string]*Tokenizer {
	nfc := parsed(t, gpt2JSON(t))
	nfc.nfc = true
	one := Bytes(0)
	one.nfc = true
	unknown, err := Parse([]byte(`{"model": {"vocab": {"?": 0, "a": 1, "hello": 2}, "unk_token": "?"}}`))
	require.NoError(t, err)
	return map[string]*Tokenizer{"gpt2": parsed(t, gpt2JSON(t)), "llama": parsed(t, llamaJSON(t)), "nfc": nfc,
		"bytes": one, "unknown": unknown}
}

func TestATextThatBeginsOrEndsWithASpecialTokenGetsNoSecondOne(t *testing.T) {
	tok := parsed(t, llamaJSON(t))
	tok.last = []int32{2}
	const b, e = 1, 2                     // <s> and </s>
	h := tok.Encode("<unk>Hi", false)[1:] // as it is after a special token
	for _, test := range []struct {
		text  string
		added bool
		want  []int32
	}{
		{"<s>Hi", true, append(append([]int32{b}, h...), e)},
		{"<s>Hi</s>", true, append(append([]int32{b}, h...), e)},
		{"<s><s>Hi", true, append(append([]int32{b, b}, h...), e)},
		{"<s>Hi</s>", false, append(append([]int32{b}, h...), e)},
		{"<s>", true, []int32{b, e}},
		{"</s>", true, []int32{b, e}},
		{"", true, []int32{b, e}},
		{"<s>", false, []int32{b}},
		{"</s><s>", true, []int32{b, e, b, e}},
	} {
		require.Equal(t, test.want, tok.Encode(test.text, test.added), "%q %v", test.text, test.added)
	}
}

func TestATextIsRefusedOnlyIfItHasMoreTokens(t *testing.T) {
	all := append(texts(200), "", strings.Repeat("\u212a", 50), strings.Repeat("▁", 50), strings.Repeat("ᄀ\u1161\u11a8", 20),
		"<|end|>"+strings.Repeat(" \n", 100)+"<|end|>", strings.Repeat("e\u0301", 50), strings.Repeat("hello", 100),
		strings.Repeat("\u1fef", 40), strings.Repeat("\u1fbe\u0308\u0301", 40), strings.Repeat("Ω\u0313\u0300\u0345", 9))
	for name, tok := range tokenizers(t) {
		for _, text := range all {
			want := tok.Encode(text, true)
			got, err := tok.EncodeUpTo(t.Context(), text, true, len(want))
			require.NoError(t, err, "%s: %q", name, text)
			require.Equal(t, want, got)
			_, err = tok.EncodeUpTo(t.Context(), text, true, len(want)-1)
			require.ErrorIs(t, err, ErrTooMany, "%s: %q", name, text)
		}
	}
}

// Ensure that NFC makes no text more than maxShrinking times shorter. For each character, the test uses the longest
// text that NFC turns into it.
func TestNormalizationShortensATextByNoMoreThanIsKnown(t *testing.T) {
	const end = 0x30000       // no other characters decompose
	longest := map[rune]int{} // of the characters that decompose to one
	decomposed := func(r rune) []rune { return []rune(norm.NFD.String(string(r))) }
	for r := range rune(end) {
		if d := decomposed(r); len(d) == 1 {
			longest[d[0]] = max(longest[d[0]], utf8.RuneLen(r))
		}
	}
	highest := 0.0
	for r := range rune(end) {
		bytes := 0
		for _, d := range decomposed(r) {
			bytes += longest[d]
		}
		require.LessOrEqual(t, utf8.RuneLen(r), bytes, "%U: no text is longer than its decomposition", r)
		if norm.NFC.IsNormalString(string(r)) {
			highest = max(highest, float64(bytes)/float64(utf8.RuneLen(r)))
		}
	}
	require.Equal(t, float64(maxShrinking), math.Ceil(highest))
}

func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

func TestATextIsCutInMemoryForItsTokens(t *testing.T) {
	const tokens, fixed = 1 << 14, 2 << 20
	all := tokenizers(t)
	delete(all, "unknown") // any number of characters becomes one token
	for name, tok := range all {
		_, err := tok.EncodeUpTo(t.Context(), "x", true, 100) // measures the vocabulary
		require.NoError(t, err)
		for _, part := range []string{"hello", "hello ", " ", "a", "zq", "日本"} {
			text := strings.Repeat(part, (4<<20)/len(part))
			bytes := allocated(func() { _, err = tok.EncodeUpTo(t.Context(), text, true, 512) })
			require.ErrorIs(t, err, ErrTooMany)
			if part != " " || !tok.sizes().strips { // which <|end|> may take
				require.Less(t, bytes, 1<<16, "%s: %q: refused at once", name, part)
			}

			text = text[:len(part)*(tokens/len(part))]
			bytes = allocated(func() { _, err = tok.EncodeUpTo(t.Context(), text, true, 2*tokens) })
			require.NoError(t, err)
			require.Less(t, bytes, fixed+16*tokens, "%s: %q", name, part)
		}
	}
}

func TestCuttingEndsWithItsContext(t *testing.T) {
	for name, tok := range tokenizers(t) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		text := strings.Repeat("hello you", 1<<16)
		var err error
		bytes := allocated(func() { _, err = tok.EncodeUpTo(ctx, text, true, math.MaxInt) })
		require.ErrorIs(t, err, context.Canceled, name)
		require.Less(t, bytes, 8<<20, name) // a copy of the text, and its first words
	}
}
