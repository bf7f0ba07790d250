package tokenizer

import (
	"slices"
	"strings"

	"github.com/dlclark/regexp2"
)

const (
	patternGPT2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + lines
	patternQwen2  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` + lines
	patternQwen35 = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}` +
		`| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*` + lines
	patternSeed   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+` + lines
	patternTekken = before + capitals + `*` + smalls + `+|` + before + capitals + `+` + smalls + `*|\p{N}` + signs
	patternGPT4o  = before + capitals + `*` + smalls + `+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		before + capitals + `+` + smalls + `*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}` + signs
	patternKimi = `\p{Han}+|` + before + capitalsNotHan + `*` + smallsNotHan + `+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
		before + capitalsNotHan + `+` + smallsNotHan + `*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` + lines
	patternDeepseek3 = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|" +
		`[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*` + lines

	lines    = `|\s*[\r\n]+|\s+(?!\S)|\s+`
	signs    = `| ?[^\s\p{L}\p{N}]+[\r\n/]*` + lines
	before   = `[^\r\n\p{L}\p{N}]?`
	capitals = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`
	smalls   = `[\p{Ll}\p{Lm}\p{Lo}\p{M}]`

	capitalsNotHan = `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}-[\p{Han}]]`
	smallsNotHan   = `[\p{Ll}\p{Lm}\p{Lo}\p{M}-[\p{Han}]]`

	// letters are from deepseek-llm's tokenizer.json.
	letters = `A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373` +
		`\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481` +
		`\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b` +
		`\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b` +
		`\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb` +
		`\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128` +
		`\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4` +
		`\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf` +
		`\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃`
	spaceAtEnd  = `\s+$`
	ideographs  = `[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+`
	punctuation = "\\p{P}\\$\\+<=>\\^~\\|`"
)

// A preTokenizer describes how text is split into words for a byte-level vocabulary of GGUF. The first pattern
// splits the text; each later pattern splits the words that the pattern before has made.
type preTokenizer struct {
	names        string // values of tokenizer.ggml.pre
	patterns     []string
	ignoreMerges bool // a word that is in the vocabulary is not split
	begin        bool // a text begins with bos_token unless the file says otherwise
	nfc          bool // text is normalized to NFC
}

// preTokenizers lists those of llama.cpp (llama-vocab.cpp) that are supported here.
var preTokenizers = []preTokenizer{
	// For GGUF without a name, llama.cpp has its own pattern.
	{names: "default", patterns: []string{`[\p{P}\$\+<=>\^~\|]+`, patternGPT2, `\p{N}+`, `[0-9][0-9][0-9]`}},
	{names: "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert mpt olmo jais " +
		"trillion granite-docling exaone4", patterns: []string{patternGPT2}},
	{names: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2", patterns: []string{patternLlama3},
		ignoreMerges: true, begin: true},
	{names: "dbrx smaug-bpe glm4 chatglm-bpe", patterns: []string{patternLlama3}},
	{names: "qwen2 deepseek-r1-qwen megrez", patterns: []string{patternQwen2}, nfc: true},
	{names: "stablelm2 hunyuan solar-open grok-2 kormo openpangu", patterns: []string{patternQwen2}},
	{names: "qwen35", patterns: []string{patternQwen35}, nfc: true},
	{names: "seed-coder", patterns: []string{patternSeed}},
	{names: "starcoder refact command-r cohere2_moe smollm codeshell exaone minerva-7b mellum2",
		patterns: []string{`\p{N}`, patternGPT2}},
	{names: "falcon", patterns: []string{`[` + punctuation + `]+`, patternGPT2, `[0-9][0-9][0-9]`}},
	{names: "tekken", patterns: []string{patternTekken}, ignoreMerges: true, begin: true},
	{names: "gpt-4o llama4 kanana2 minimax-m2", patterns: []string{patternGPT4o}},
	{names: "kimi-k2", patterns: []string{patternKimi}},
	{names: "deepseek-llm", patterns: []string{`[\r\n]`, `\s?[` + letters + `]+`,
		`\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+`, spaceAtEnd, ideographs, `\p{N}+`}},
	{names: "deepseek-coder", patterns: []string{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, ideographs, `\p{N}`}},
	{names: "deepseek-v3 hunyuan-dense joyai-llm", patterns: []string{`\p{N}{1,3}`, `[一-龥぀-ゟ゠-ヿ]+`, patternDeepseek3}},
}

func preTokenizerFor(name string) (preTokenizer, error) {
	if name == "" {
		name = "default"
	}
	var known []string
	for _, c := range preTokenizers {
		names := strings.Fields(c.names)
		if slices.Contains(names, name) {
			return c, nil
		}
		known = append(known, names[0])
	}
	return preTokenizer{}, badFormat("tokenizer.ggml.pre is %q, which is not supported; supported are %s and their "+
		"variants", name, strings.Join(known, ", "))
}

// usePatterns adds patterns that split text into words. It panics if a pattern is not valid.
func (t *Tokenizer) usePatterns(patterns ...string) {
	for _, p := range patterns {
		t.patterns = append(t.patterns, regexp2.MustCompile(linear(p), regexp2.Unicode))
	}
}

// linear returns a pattern with the same matches that takes less work. For the pattern \s+$, regexp2 reads a run of white
// space again from each of its characters. All matches begin where a run begins, so it needs to look only there.
func linear(pattern string) string {
	if pattern == spaceAtEnd {
		return `(?<!\s)` + spaceAtEnd
	}
	return pattern
}
