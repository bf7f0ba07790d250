package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dlclark/regexp2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/testkit/level"
)

func (t *Tokenizer) isolated(text string) string {
	var words []string
	isolate([]rune(text), t.patterns, func(word string) bool {
		words = append(words, word)
		return true
	})
	return strings.Join(words, "¦")
}

// Ensure that for these names of pre-tokenizers, text is split into the same words as by llama.cpp's
// unicode_regex_split (ik_llama.cpp 8337e4cd).
func TestWordsAreCutAsTheNameInGGUFSays(t *testing.T) {
	const text = "I'LL don't camelCASE HTTPServer 12345 ½Ⅻ 3.14!!/ ...\n\n  \t x==y  日本語カナ 한국\r\n $5 `a`_b [c]\n   "
	for _, test := range []struct{ pre, want string }{
		{"default", "I¦'¦LL¦ don¦'¦t¦ camelCASE¦ HTTPServer¦ ¦123¦45¦ ¦½Ⅻ¦ ¦3¦.¦14¦!!/¦ ¦...¦\n\n  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n ¦$¦5¦ `¦a¦`¦_¦b¦ ¦[¦c¦]¦\n   "},
		{"", "I¦'¦LL¦ don¦'¦t¦ camelCASE¦ HTTPServer¦ ¦123¦45¦ ¦½Ⅻ¦ ¦3¦.¦14¦!!/¦ ¦...¦\n\n  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n ¦$¦5¦ `¦a¦`¦_¦b¦ ¦[¦c¦]¦\n   "}, // not GPT-2's way
		{"gpt-2", "I¦'¦LL¦ don¦'t¦ camelCASE¦ HTTPServer¦ 12345¦ ½Ⅻ¦ 3¦.¦14¦!!/¦ ...¦\n\n  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]¦\n   "},
		{"llama-bpe", "I¦'LL¦ don¦'t¦ camelCASE¦ HTTPServer¦ ¦123¦45¦ ¦½Ⅻ¦ ¦3¦.¦14¦!!/¦ ...\n\n¦  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]\n¦   "},
		{"dbrx", "I¦'LL¦ don¦'t¦ camelCASE¦ HTTPServer¦ ¦123¦45¦ ¦½Ⅻ¦ ¦3¦.¦14¦!!/¦ ...\n\n¦  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]\n¦   "},
		{"glm4", "I¦'LL¦ don¦'t¦ camelCASE¦ HTTPServer¦ ¦123¦45¦ ¦½Ⅻ¦ ¦3¦.¦14¦!!/¦ ...\n\n¦  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]\n¦   "},
		{"qwen2", "I¦'LL¦ don¦'t¦ camelCASE¦ HTTPServer¦ ¦1¦2¦3¦4¦5¦ ¦½¦Ⅻ¦ ¦3¦.¦1¦4¦!!/¦ ...\n\n¦  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]\n¦   "},
		{"qwen35", "I¦'LL¦ don¦'t¦ camelCASE¦ HTTPServer¦ ¦1¦2¦3¦4¦5¦ ¦½¦Ⅻ¦ ¦3¦.¦1¦4¦!!/¦ ...\n\n¦  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]\n¦   "},
		{"stablelm2", "I¦'LL¦ don¦'t¦ camelCASE¦ HTTPServer¦ ¦1¦2¦3¦4¦5¦ ¦½¦Ⅻ¦ ¦3¦.¦1¦4¦!!/¦ ...\n\n¦  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]\n¦   "},
		{"seed-coder", "I¦'LL¦ don¦'t¦ camelCASE¦ HTTPServer¦ ¦1¦2¦3¦4¦5¦ ¦½¦Ⅻ¦ ¦3¦.¦1¦4¦!!/¦ ...¦\n\n¦  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]¦\n¦   "},
		{"smollm", "I¦'¦LL¦ don¦'t¦ camelCASE¦ HTTPServer¦ ¦1¦2¦3¦4¦5¦ ¦½¦Ⅻ¦ ¦3¦.¦1¦4¦!!/¦ ...¦\n\n  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]¦\n   "},
		{"falcon", "I¦'¦LL¦ don¦'¦t¦ camelCASE¦ HTTPServer¦ ¦123¦45¦ ½Ⅻ¦ 3¦.¦14¦!!/¦ ¦...¦\n\n  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n ¦$¦5¦ ¦`¦a¦`_¦b¦ ¦[¦c¦]¦\n   "},
		{"tekken", "I¦'LL¦ don¦'t¦ camel¦CASE¦ HTTPServer¦ ¦1¦2¦3¦4¦5¦ ¦½¦Ⅻ¦ ¦3¦.¦1¦4¦!!/¦ ...\n\n¦  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]\n¦   "},
		{"gpt-4o", "I'LL¦ don't¦ camel¦CASE¦ HTTPServer¦ ¦123¦45¦ ¦½Ⅻ¦ ¦3¦.¦14¦!!/¦ ...\n\n¦  \t¦ x¦==¦y¦ ¦ 日本語カナ¦ 한국¦\r\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]\n¦   "},
		{"deepseek-llm", "I¦'¦LL¦ don¦'¦t¦ camelCASE¦ HTTPServer¦ ¦12345¦ ¦½¦Ⅻ¦ ¦3¦.¦14¦!!/¦ ...¦\n¦\n¦  \t¦ x¦==¦y¦  ¦日本語カナ¦ ¦한국¦\r¦\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]¦\n¦   "},
		{"deepseek-coder", "I¦'¦LL¦ don¦'¦t¦ camelCASE¦ HTTPServer¦ ¦1¦2¦3¦4¦5¦ ¦½¦Ⅻ¦ ¦3¦.¦1¦4¦!!/¦ ...¦\n¦\n¦  \t¦ x¦==¦y¦ ¦ ¦日本語カナ¦ ¦한국¦\r¦\n¦ $¦5¦ `¦a¦`¦_¦b¦ [¦c¦]¦\n¦   "},
		{"deepseek-v3", "I¦'LL¦ don¦'t¦ camelCASE¦ HTTPServer¦ ¦123¦45¦ ¦½Ⅻ¦ ¦3¦.¦14¦!!/¦ ...\n\n¦  \t¦ x¦==¦y¦  ¦日本語カナ¦ 한국¦\r\n¦ $¦5¦ `¦a¦`_¦b¦ [¦c¦]\n¦   "},
	} {
		t.Run(test.pre, func(t *testing.T) {
			c, err := preTokenizerFor(test.pre)
			require.NoError(t, err)
			tok := blank()
			tok.usePatterns(c.patterns...)
			require.Equal(t, test.want, tok.isolated(text))
		})
	}
}

// Ensure that splitting a long run of white space before other text ends. If each character of the run were a new
// beginning, as for regexp2's \s+$, the work would be the square of its length.
func TestALongRunOfSpaceIsSplit(t *testing.T) {
	n := 1 << 16
	if level.Long() {
		n = 1 << 18
	}
	for _, c := range preTokenizers {
		tok := blank()
		tok.usePatterns(c.patterns...)
		runes := 0
		require.True(t, isolate([]rune(strings.Repeat(" ", n)+"1"), tok.patterns, func(word string) bool {
			runes += len(word)
			return true
		}), c.names)
		require.Equal(t, n+1, runes, c.names)
	}
}

// Ensure that linear changes no word.
func TestLinearPatternsHaveTheSameMatches(t *testing.T) {
	same := regexp2.MustCompile(spaceAtEnd, regexp2.Unicode)
	faster := regexp2.MustCompile(linear(spaceAtEnd), regexp2.Unicode)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune(" \n\t\u00a0a1"))).Draw(t, "text")
		words := func(p *regexp2.Regexp) string {
			return (&Tokenizer{patterns: []*regexp2.Regexp{p}}).isolated(text)
		}
		require.Equal(t, words(same), words(faster))
	})
}

// Ensure that a model's own pattern is used, not llama.cpp's approximation. llama.cpp does not treat À as a capital
// letter, nor ~ as a symbol.
func TestWordsAreCutAsTheModelsTokenizerJSONSays(t *testing.T) {
	for _, test := range []struct{ pre, text, want string }{
		{"tekken", "ÉtéÀ ǅa", "Été¦À¦ ǅa"},
		{"gpt-4o", "ÉtéÀ's", "Été¦À's"},
		{"deepseek-v3", "a ~b", "a¦ ~¦b"},
		{"kimi-k2", "a 日本語カナ ÉtéÀ's ÀX漢x 1234 ~!\n\n b", "a¦ ¦日本語¦カナ¦ Été¦À's¦ ÀX¦漢¦x¦ ¦123¦4¦ ~!\n\n¦ b"},
		{"deepseek-coder", "a\u2028b", "a¦\u2028¦b"},
	} {
		c, err := preTokenizerFor(test.pre)
		require.NoError(t, err)
		tok := blank()
		tok.usePatterns(c.patterns...)
		require.Equal(t, test.want, tok.isolated(test.text), test.pre)
	}
}

// Ensure that the name of a pre-tokenizer implies ignore_merges, add_bos and NFC, as in the models' tokenizer.json.
func TestTheNameInGGUFDecidesMoreThanWords(t *testing.T) {
	for _, test := range []struct {
		pre          string
		word, accent []int32
	}{
		{"gpt-2", []int32{1, 1}, []int32{5, 6, 7}}, {"smollm", []int32{1, 1}, []int32{5, 6, 7}},
		{"gpt-4o", []int32{1, 1}, []int32{5, 6, 7}}, {"dbrx", []int32{1, 1}, []int32{5, 6, 7}},
		{"qwen2", []int32{1, 1}, []int32{4}}, {"qwen35", []int32{1, 1}, []int32{4}},
		{"llama-bpe", []int32{0, 2}, []int32{0, 5, 6, 7}}, {"tekken", []int32{0, 2}, []int32{0, 5, 6, 7}},
	} {
		tok, err := FromGGUF(meta(t, map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": test.pre,
			"tokenizer.ggml.tokens": []string{"<s>", "a", "aa", "Ã", "Ã©", "e", "Ì", "ģ", "©"}, "tokenizer.ggml.merges": []string{"Ã ©"},
			"tokenizer.ggml.token_type": []int32{3, 1, 1, 1, 1, 1, 1, 1, 1}, "tokenizer.ggml.bos_token_id": uint32(0)}))
		require.NoError(t, err)
		require.Equal(t, test.word, tok.Encode("aa", true), test.pre)
		require.Equal(t, test.accent, tok.Encode("e\u0301", true), test.pre)
	}
}

// Ensure that the pre-tokenizers of StarCoder, Falcon, Phi-4 and Gemma work as in their
// tokenizer.json.
func TestPreTokenizersOfTokenizerJSON(t *testing.T) {
	gpt4 := string(must(json.Marshal(patternLlama3))) // which is Phi-4's
	const bytelevel = `{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}`
	for _, test := range []struct{ name, steps, want string }{
		{"each digit, then GPT-2's pattern", `{"type": "Digits", "individual_digits": true}, ` + bytelevel, "x¦=¦ ¦1¦2¦٣¦ it¦'s"},
		{"numbers, then GPT-2's pattern", `{"type": "Digits", "individual_digits": false}, ` + bytelevel, "x¦=¦ ¦12٣¦ it¦'s"},
		{"punctuation together", `{"type": "Punctuation", "behavior": "Contiguous"}, ` + bytelevel, "x¦=¦ 12٣¦ it¦'¦s"},
		{"punctuation", `{"type": "Punctuation"}, ` + bytelevel, "x¦=¦ 12٣¦ it¦'¦s"},
		{"what does not match removed", `{"type": "Split", "pattern": {"Regex": ` + gpt4 + `}, "behavior": "Removed", "invert": true}`,
			"x¦=¦ ¦12٣¦ it¦'s"},
	} {
		tok, err := Parse([]byte(`{"model": {"vocab": {"a": 0}}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [` +
			test.steps + `]}}`))
		require.NoError(t, err, test.name)
		require.Equal(t, test.want, tok.isolated("x= 12٣ it's"), test.name)
	}
	const gemma = `"pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious"}`
	tok, err := Parse([]byte(`{"model": {"vocab": {"a": 0, "▁": 1, "a▁": 2, "a▁a": 3}, "merges": ["a ▁", "a▁ a"]}, ` + gemma + `,
		"normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}}`))
	require.NoError(t, err)
	require.Equal(t, []int32{3}, tok.Encode("a a", false))
	for _, settings := range []string{gemma, `"pre_tokenizer": {"type": "Split", "pattern": {"Regex": ` + gpt4 + `}, "behavior": "Removed"}`,
		`"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Removed", "invert": true}`,
		`"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a"}, "behavior": "MergedWithNext"}`,
		`"pre_tokenizer": {"type": "Punctuation", "behavior": "Removed"}`} {
		_, err := Parse([]byte(`{"model": {"vocab": {"a": 0}}, ` + settings + `}`))
		require.ErrorContains(t, err, "with these settings is not supported", settings)
	}
}

func TestAWayToCutWordsThatIsNotKnownIsRefused(t *testing.T) {
	for _, pre := range []string{"kimi-k3", "bloom", "gpt2", "chameleon"} {
		_, err := FromGGUF(meta(t, map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": []string{"a"},
			"tokenizer.ggml.pre": pre}))
		require.ErrorIs(t, err, ErrFormat)
		require.ErrorContains(t, err, fmt.Sprintf("tokenizer.ggml.pre is %q, which is not supported; supported are default, gpt-2, llama-bpe,", pre))
	}
}

func TestAWordOf100000LettersIsCut(t *testing.T) {
	tok := parsed(t, llamaJSON(t))
	text := strings.Repeat("hello", 20_000)
	require.Equal(t, text, strings.TrimPrefix(tok.Decode(tok.Encode(text, false)), " "))
}
