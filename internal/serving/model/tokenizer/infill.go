package tokenizer

import (
	"context"
	"slices"
	"strings"

	"llmmemory/internal/serving/model/weights"
)

// infillMarks lists the tokens that models expect around the prefix and the suffix when they fill in the middle of a
// text. The names are those that llama.cpp knows (special_fim_pre_id and the following in llama-vocab.cpp), and
// Codestral's from mistral_common ("InstructTokenizerV2.encode_fim").
var infillMarks = []struct {
	prefix, suffix, middle string // middle is "" if the model answers after the prefix
	suffixFirst            bool
	ends                   []string // these may end the generated text, besides the tokens that end any answer
	repository             []string // names of the token before the name of a repository
	separator              string   // the token before the name of a file, or ""
}{
	// Qwen2.5-Coder, Granite 4
	{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", false,
		[]string{"<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}, []string{"<|repo_name|>"}, "<|file_sep|>"},
	// StarCoder, StarCoder2, Granite 3
	{"<fim_prefix>", "<fim_suffix>", "<fim_middle>", false,
		[]string{"<|endoftext|>", "<fim_pad>", "<repo_name>", "<reponame>", "<file_sep>"}, []string{"<repo_name>", "<reponame>"}, "<file_sep>"},
	// DeepSeek-Coder
	{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", false, []string{"<｜end▁of▁sentence｜>", "<|EOT|>"}, nil, ""},
	// CodeLlama
	{"▁<PRE>", "▁<SUF>", "▁<MID>", false, []string{"▁<EOT>"}, nil, ""},
	{"<PRE>", "<SUF>", "<MID>", false, []string{"<EOT>"}, nil, ""},
	// Codestral
	{"[PREFIX]", "[SUFFIX]", "", true, nil, nil, ""},
}

// isInfillMark reports whether text is the prefix, suffix or middle token of an entry of infillMarks.
func isInfillMark(text string) bool {
	for _, m := range infillMarks {
		if text != "" && (text == m.prefix || text == m.suffix || text == m.middle) {
			return true
		}
	}
	return false
}

// An Infill has the tokens of a vocabulary for filling in the middle of a text.
type Infill struct {
	tokenizer              *Tokenizer
	prefix, suffix, middle int32 // middle is -1 if there is none
	suffixFirst            bool
	ends                   []int32
	repository, separator  int32 // before the names of a repository and of a file; -1 if there are none
}

// Infill returns the tokens for filling in the middle of a text, or nil if the vocabulary has none.
func (t *Tokenizer) Infill() *Infill { return t.infill }

// Ends returns tokens that end the text between prefix and suffix, in addition to those of Tokenizer.Ends. The caller
// must not change them.
func (f *Infill) Ends() []int32 { return f.ends }

// Encode returns the prompt after which a model writes the text between prefix and suffix. In both, the names of
// protected tokens are ordinary text. addSpecial and limit mean the same as in EncodeUpTo, but no token is added at
// the end.
func (f *Infill) Encode(ctx context.Context, prefix, suffix string, addSpecial bool, limit int) ([]int32, error) {
	t := f.tokenizer
	if fits := t.Fits(limit); !fits(prefix) || !fits(suffix) {
		return nil, ErrTooMany
	}
	e := encoder{t: t, ctx: ctx, limit: limit, window: window}
	if addSpecial {
		e.out = append(e.out, t.first...)
	}
	parts := []struct {
		mark   int32
		text   string
		joined bool // the text has no space of SentencePiece before it
	}{{f.prefix, prefix, false}, {f.suffix, suffix, true}}
	if f.suffixFirst {
		slices.Reverse(parts)
	}
	for _, p := range parts {
		e.out, e.joined = append(e.out, p.mark), p.joined
		e.parts(strings.ToValidUTF8(p.text, "\uFFFD"), false, func(_, _ int, id int32) bool { return !t.protected(id) })
	}
	if f.middle >= 0 {
		e.out = append(e.out, f.middle)
	}
	if e.stopped() {
		return nil, e.err
	}
	return e.out, nil
}

// findInfill sets t.infill to the first entry of infillMarks whose tokens are in the vocabulary. If keys of a GGUF file
// name a prefix, a suffix and a middle token, these replace the tokens of the entry. meta has the keys of the GGUF
// file, or is nil for other files.
func (t *Tokenizer) findInfill(meta map[string]weights.Value) {
	for _, m := range infillMarks {
		f := Infill{tokenizer: t, middle: -1, suffixFirst: m.suffixFirst, repository: -1, separator: -1}
		if !t.find(m.prefix, &f.prefix) || !t.find(m.suffix, &f.suffix) || m.middle != "" && !t.find(m.middle, &f.middle) {
			continue
		}
		for _, text := range m.ends {
			var end int32
			if t.find(text, &end) {
				f.ends = append(f.ends, end)
			}
		}
		var id int32
		for _, name := range m.repository {
			if t.find(name, &id) {
				f.repository = id
			}
		}
		if m.separator != "" && t.find(m.separator, &id) {
			f.separator = id
		}
		t.infill = &f
		break
	}
	t.readInfill(meta)
}

func (t *Tokenizer) find(text string, id *int32) (ok bool) {
	if *id, ok = t.Token(text); !ok {
		*id, ok = t.Token(string(t.piece(text)))
	}
	return ok
}

// readInfill sets t.infill from the keys of a GGUF file, if they name a prefix, a suffix and a middle token. A key may
// have its current name or its earlier name. The padding, repository and separator tokens are added to ends, because
// the model may end the generated text with one of them.
func (t *Tokenizer) readInfill(meta map[string]weights.Value) {
	key := func(names ...string) int32 {
		for _, name := range names {
			if id, ok := meta["tokenizer.ggml."+name+"_token_id"].Int(); ok && id >= 0 && id < int64(len(t.pieces)) {
				return int32(id)
			}
		}
		return -1
	}
	f := Infill{tokenizer: t, prefix: key("fim_pre", "prefix"), suffix: key("fim_suf", "suffix"), middle: key("fim_mid", "middle"),
		repository: key("fim_rep"), separator: key("fim_sep")}
	if f.prefix < 0 || f.suffix < 0 || f.middle < 0 {
		return
	}
	if t.infill != nil {
		f.ends, f.suffixFirst = t.infill.ends, t.infill.suffixFirst
		if f.repository < 0 {
			f.repository = t.infill.repository
		}
		if f.separator < 0 {
			f.separator = t.infill.separator
		}
	}
	for _, name := range []string{"fim_pad", "fim_rep", "fim_sep"} {
		if id := key(name); id >= 0 && !slices.Contains(f.ends, id) {
			f.ends = append(f.ends, id)
		}
	}
	t.infill = &f
}

// contains reports whether a token is one of f's tokens: a prefix, suffix or middle token, or one of f.ends.
func (f *Infill) contains(id int32) bool {
	return f != nil && (id == f.prefix || id == f.suffix || id == f.middle || slices.Contains(f.ends, id))
}
