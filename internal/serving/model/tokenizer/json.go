package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dlclark/regexp2"
)

// The parts of tokenizer.json that are read.
type (
	document struct {
		Added         []addedToken `json:"added_tokens"`
		Normalizer    *step        `json:"normalizer"`
		PreTokenizer  *step        `json:"pre_tokenizer"`
		PostProcessor *step        `json:"post_processor"`
		Decoder       *step        `json:"decoder"`
		Model         vocabulary   `json:"model"`
	}
	addedToken struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
		Left    bool   `json:"lstrip"`
		Right   bool   `json:"rstrip"`
	}
	vocabulary struct {
		Type         string            `json:"type"`
		Vocab        map[string]int    `json:"vocab"`
		Merges       []json.RawMessage `json:"merges"`
		Unknown      *string           `json:"unk_token"`
		ByteFallback bool              `json:"byte_fallback"`
		IgnoreMerges bool              `json:"ignore_merges"`
	}
	// A step is a normalizer, pre-tokenizer, post-processor or decoder.
	step struct {
		Type     string `json:"type"`
		Steps    []step `json:"normalizers"`
		Pre      []step `json:"pretokenizers"`
		Post     []step `json:"processors"`
		Decoders []step `json:"decoders"`
		Pattern  struct {
			Regex  *string `json:"Regex"`
			String *string `json:"String"`
		} `json:"pattern"`
		Behavior   string                   `json:"behavior"`
		Invert     bool                     `json:"invert"`
		UseRegex   *bool                    `json:"use_regex"`
		AddPrefix  *bool                    `json:"add_prefix_space"`
		Individual bool                     `json:"individual_digits"`
		Prepend    string                   `json:"prepend"`
		Content    json.RawMessage          `json:"content"`
		Scheme     string                   `json:"prepend_scheme"`
		Split      *bool                    `json:"split"`
		Single     []map[string]placeholder `json:"single"`
	}
	placeholder struct {
		ID string `json:"id"`
	}
)

// Open reads the tokenizer of a model's folder from tokenizer.json, or from vocab.json and merges.txt. The token
// that the folder names as eos_token ends an answer.
func Open(dir string) (*Tokenizer, error) {
	t, err := openVocabulary(dir)
	if err != nil {
		return nil, err
	}
	special, err := SpecialTokens(dir)
	if err != nil {
		return nil, err
	}
	if id, ok := t.Token(special["eos_token"]); ok {
		t.addEnd(id)
	}
	t.findInfill(nil)
	t.seal()
	return t, nil
}

func openVocabulary(dir string) (*Tokenizer, error) {
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return openMerges(dir)
	}
	if err != nil {
		return nil, err
	}
	t, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	return t, nil
}

// Parse reads a tokenizer.json.
func Parse(data []byte) (*Tokenizer, error) {
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, badFormat("%w", err)
	}
	if d.Model.Type != "BPE" && d.Model.Type != "" {
		return nil, badFormat("a model of type %q; BPE is supported", d.Model.Type)
	}
	if len(d.Model.Vocab) == 0 {
		return nil, badFormat("it has no vocabulary")
	}
	t := blank()
	for _, f := range []func(*document) error{t.setRules, t.setVocabulary, t.setMerges, t.setAdded, t.setFirstAndLast} {
		if err := f(&d); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func flatten(s *step) []step {
	if s == nil {
		return nil
	}
	if s.Type != "Sequence" {
		return []step{*s}
	}
	var all []step
	for _, list := range [][]step{s.Steps, s.Pre, s.Post, s.Decoders} {
		for i := range list {
			all = append(all, flatten(&list[i])...)
		}
	}
	return all
}

// setRules reads the normalizer and the pre-tokenizer. They also determine whether merging starts from bytes or from
// characters.
func (t *Tokenizer) setRules(d *document) error {
	t.characters = true
	spaces := true // the text has spaces
	for _, s := range flatten(d.Normalizer) {
		switch {
		case s.Type == "NFC":
			t.nfc = true
		case s.Type == "Prepend" && s.Prepend == "▁":
			t.prefix = prefixAlways
		case s.Type == "Replace" && s.Pattern.String != nil && *s.Pattern.String == " " && string(s.Content) == `"▁"`:
			spaces = false
		default:
			return badFormat("the normalizer %q is not supported", s.Type)
		}
	}
	for _, s := range flatten(d.PreTokenizer) {
		if err := t.setPreTokenizer(&s, spaces); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tokenizer) setPreTokenizer(s *step, spaces bool) error {
	switch {
	case s.Type == "ByteLevel":
		t.characters = false
		if s.AddPrefix != nil && *s.AddPrefix {
			t.prefix = prefixAlways
		}
		if s.UseRegex == nil || *s.UseRegex {
			t.usePatterns(patternGPT2)
		}
	case s.Type == "Split" && s.Pattern.Regex != nil && (s.Behavior == "Isolated" && !s.Invert ||
		s.Behavior == "Removed" && s.Invert && matchesAll(*s.Pattern.Regex)):
		p, err := regexp2.Compile(linear(*s.Pattern.Regex), regexp2.Unicode)
		if err != nil {
			return badFormat("the pattern %q: %w", *s.Pattern.Regex, err)
		}
		t.patterns = append(t.patterns, p)
	case s.Type == "Digits" && s.Individual:
		t.usePatterns(`\p{N}`)
	case s.Type == "Digits":
		t.usePatterns(`\p{N}+`)
	case s.Type == "Punctuation" && s.Behavior == "Contiguous":
		t.usePatterns(`[` + punctuation + `]+`)
	case s.Type == "Punctuation" && (s.Behavior == "" || s.Behavior == "Isolated"):
		t.usePatterns(`[` + punctuation + `]`)
	case s.Type == "Split" && s.Pattern.String != nil && *s.Pattern.String == " " && !spaces: // Gemma's, which splits nothing
	case s.Type == "Metaspace" && (s.Split == nil || !*s.Split):
		t.prefix = map[string]spacePrefix{"": prefixAlways, "always": prefixAlways, "first": prefixFirst}[s.Scheme]
	default:
		return badFormat("the pre-tokenizer %q with these settings is not supported", s.Type)
	}
	return nil
}

// matchesAll reports whether a pattern has the usual alternatives for white space, letters, numbers and all other
// characters. Every character of a text is then in a match of the pattern, so a pre-tokenizer that drops the gaps
// between matches drops nothing.
func matchesAll(pattern string) bool {
	return strings.HasSuffix(pattern, `|\s+`) && strings.Contains(pattern, `?\p{L}+|`) &&
		strings.Contains(pattern, `|\p{N}`) && strings.Contains(pattern, `| ?[^\s\p{L}\p{N}]+`)
}

func (t *Tokenizer) piece(text string) []byte {
	if t.characters {
		return []byte(strings.ReplaceAll(text, "▁", " "))
	}
	if b, ok := unmap(text); ok {
		return b
	}
	return []byte(text)
}

func (t *Tokenizer) setVocabulary(d *document) error {
	for text, id := range d.Model.Vocab {
		if id < 0 || id >= maxTokens {
			return badFormat("token %d", id)
		}
		if !d.Model.ByteFallback || !t.addByte(id, text) {
			t.addText(id, text)
		}
	}
	if u := d.Model.Unknown; u != nil {
		if id, ok := d.Model.Vocab[*u]; ok {
			t.unknown = int32(id)
		}
	}
	t.ignoreMerges = d.Model.IgnoreMerges
	return nil
}

func (t *Tokenizer) setMerges(d *document) error {
	t.merges = make(map[pair]merge, len(d.Model.Merges))
	for rank, raw := range d.Model.Merges {
		var parts []string
		var line string
		if json.Unmarshal(raw, &line) == nil {
			parts = strings.Split(line, " ")
		} else if err := json.Unmarshal(raw, &parts); err != nil {
			return badFormat("merge %d: %w", rank, err)
		}
		if err := t.merge(rank, parts); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tokenizer) merge(rank int, parts []string) error {
	if len(parts) != 2 {
		return badFormat("merge %d has %d parts; two are expected", rank, len(parts))
	}
	left, right := t.piece(parts[0]), t.piece(parts[1])
	l, ok1 := t.ids[string(left)]
	r, ok2 := t.ids[string(right)]
	id, ok3 := t.ids[string(left)+string(right)]
	if !ok1 || !ok2 || !ok3 {
		return badFormat("merge %d of %q and %q is not in the vocabulary", rank, parts[0], parts[1])
	}
	if _, ok := t.merges[pair{l, r}]; !ok {
		t.merges[pair{l, r}] = merge{int32(rank), id}
	}
	return nil
}

func (t *Tokenizer) setAdded(d *document) error {
	for _, a := range d.Added {
		if a.ID < 0 || a.ID >= maxTokens {
			return badFormat("token %d", a.ID)
		}
		t.enter(a.ID, []byte(a.Content), a.Special)
		t.added.add(a.Content, int32(a.ID), strip{a.Left, a.Right})
	}
	return nil
}

func (t *Tokenizer) setFirstAndLast(d *document) error {
	for _, s := range flatten(d.PostProcessor) {
		if s.Type != "TemplateProcessing" {
			continue
		}
		before := true
		for _, item := range s.Single {
			if _, ok := item["Sequence"]; ok {
				before = false
				continue
			}
			name := item["SpecialToken"].ID
			id, ok := t.Token(name)
			if !ok {
				return badFormat("the template names %q, which is not a token", name)
			}
			if before {
				t.first = append(t.first, id)
			} else {
				t.last = append(t.last, id)
			}
		}
	}
	return nil
}
