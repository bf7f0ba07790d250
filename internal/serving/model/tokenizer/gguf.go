package tokenizer

import (
	"strings"

	"llmmemory/internal/serving/model/weights"
)

const (
	ggufUnknown = 2
	ggufControl = 3
	ggufAdded   = 4
	ggufByte    = 6
)

// FromGGUF reads the tokenizer of a GGUF file.
func FromGGUF(meta map[string]weights.Value) (*Tokenizer, error) {
	tokens := meta["tokenizer.ggml.tokens"].Strings()
	kinds := meta["tokenizer.ggml.token_type"].Floats()
	if len(tokens) == 0 || len(tokens) > maxTokens || kinds != nil && len(kinds) != len(tokens) {
		return nil, badFormat("%d tokens with %d types", len(tokens), len(kinds))
	}
	t := blank()
	if id, ok := meta["tokenizer.ggml.unknown_token_id"].Int(); ok && (id < 0 || id >= int64(len(tokens))) {
		return nil, badFormat("unknown_token_id is %d of %d", id, len(tokens))
	}
	if err := t.setEnds(meta, tokens, kinds); err != nil {
		return nil, err
	}
	read := t.fromGPT2
	switch name := meta["tokenizer.ggml.model"].String(); name {
	case "gpt2":
	case "llama":
		read = t.fromLlama
	default:
		return nil, badFormat("a vocabulary of kind %q; gpt2 and llama are supported", name)
	}
	if err := read(meta, tokens, kinds); err != nil {
		return nil, err
	}
	t.findInfill(meta)
	t.seal()
	return t, nil
}

func kindOf(kinds []float64, i int) int {
	if kinds == nil {
		return 1
	}
	return int(kinds[i])
}

func (t *Tokenizer) fromGPT2(meta map[string]weights.Value, tokens []string, kinds []float64) error {
	c, err := preTokenizerFor(meta["tokenizer.ggml.pre"].String())
	if err != nil {
		return err
	}
	t.usePatterns(c.patterns...)
	t.ignoreMerges, t.nfc = c.ignoreMerges, c.nfc
	for i, text := range tokens {
		if kind := kindOf(kinds, i); kind == ggufControl || kind == ggufAdded || kind == ggufUnknown {
			t.addGGUF(i, text, kind)
		} else {
			t.addGGUFText(i, text)
		}
	}
	t.merges = map[pair]merge{}
	for rank, line := range meta["tokenizer.ggml.merges"].Strings() {
		if err := t.merge(rank, strings.Split(line, " ")); err != nil {
			return err
		}
	}
	return t.setFirstAndLastGGUF(meta, len(tokens), c.begin)
}

// fromLlama reads a vocabulary of SentencePiece's BPE. Merges come in the order of the scores of the tokens that
// they make.
func (t *Tokenizer) fromLlama(meta map[string]weights.Value, tokens []string, kinds []float64) error {
	scores := meta["tokenizer.ggml.scores"].Floats()
	if len(scores) != len(tokens) {
		return badFormat("%d tokens with %d scores", len(tokens), len(scores))
	}
	t.characters, t.prefix = true, prefixAlways
	if add, ok := meta["tokenizer.ggml.add_space_prefix"].Int(); ok && add == 0 {
		t.prefix = prefixNever
	}
	for i, text := range tokens {
		t.scores = append(t.scores, float32(scores[i]))
		switch kind := kindOf(kinds, i); {
		case kind == ggufByte:
			if !t.addByte(i, text) {
				return badFormat("token %d is of a byte and called %q", i, text)
			}
		case kind == ggufControl || kind == ggufUnknown || kind == ggufAdded:
			t.addGGUF(i, text, kind)
			if kind == ggufAdded { // merging also finds Gemma's runs of spaces and line breaks
				t.ids[string(t.piece(text))] = int32(i)
				t.pieces[i] = t.piece(text)
			}
		default:
			t.addGGUFText(i, text)
		}
	}
	if id, ok := meta["tokenizer.ggml.unknown_token_id"].Int(); ok {
		t.unknown = int32(id)
	}
	return t.setFirstAndLastGGUF(meta, len(tokens), true)
}

// addGGUFText adds token i, which is ordinary text according to the file. Some files say this of a token that ends an
// answer or that serves for filling in the middle of a text. addGGUFText recognizes such a token by its text. It makes
// the token special, and adds it to the tokens that are found in text.
func (t *Tokenizer) addGGUFText(i int, text string) {
	t.addText(i, text)
	if isEnd(text, 1) || isInfillMark(text) {
		t.special[i] = true
		t.added.add(text, int32(i), strip{})
	}
}

func (t *Tokenizer) addGGUF(i int, text string, kind int) {
	t.enter(i, []byte(text), kind != ggufAdded)
	t.added.add(text, int32(i), strip{})
}

func (t *Tokenizer) setFirstAndLastGGUF(meta map[string]weights.Value, n int, begin bool) error {
	for _, side := range []struct {
		flag, id string
		add      bool
		tokens   *[]int32
	}{{"add_bos_token", "bos_token_id", begin, &t.first}, {"add_eos_token", "eos_token_id", false, &t.last}} {
		if flag, ok := meta["tokenizer.ggml."+side.flag].Int(); ok {
			side.add = flag != 0
		}
		id, ok := meta["tokenizer.ggml."+side.id].Int()
		if !side.add || !ok {
			continue
		}
		if id < 0 || id >= int64(n) {
			return badFormat("%s is %d of %d", side.id, id, n)
		}
		*side.tokens = []int32{int32(id)}
	}
	return nil
}
