package tokenizer

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/dlclark/regexp2"
)

// prefixing says where a space is put before the text (SentencePiece).
type prefixing uint8

const (
	prefixNever  prefixing = iota
	prefixFirst            // before the first part only
	prefixAlways           // before each part between added tokens
)

// A Tokenizer has a vocabulary and the rules to cut text.
type Tokenizer struct {
	pieces  [][]byte         // what each token stands for; nil: no such token
	ids     map[string]int32 // of the tokens that text can be cut into
	special []bool           // tokens that are no text
	bytes   [256]int32       // the token of a byte, or -1
	unknown int32            // the token of what cannot be cut, or -1

	merges      map[pair]merge // in order of rank; nil: by scores
	scores      []float32
	whole       bool // a part that is in the vocabulary is not cut (ignore_merges)
	characters  bool // cutting begins with characters, not with bytes
	prefix      prefixing
	composed    bool // text is normalized to NFC
	patterns    []*regexp2.Regexp
	added       matcher
	first, last []int32 // tokens around a text
	ends        []int32 // tokens that end an answer

	sizes func() sizes // measured once
	edges func() []rune
}

func blank() *Tokenizer {
	t := &Tokenizer{ids: map[string]int32{}, unknown: -1}
	for i := range t.bytes {
		t.bytes[i] = -1
	}
	t.sizes, t.edges = sync.OnceValue(t.measure), sync.OnceValue(t.findEdges)
	return t
}

// Special reports whether a token is no text, but begins or ends something.
func (t *Tokenizer) Special(id int32) bool {
	return id >= 0 && int(id) < len(t.special) && t.special[id]
}

// Piece is the bytes that a token stands for, which may be a part of a
// character. It must not be changed.
func (t *Tokenizer) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return nil
	}
	return t.pieces[id]
}

// Text is Piece as a string, in the same memory.
func (t *Tokenizer) Text(id int32) string {
	piece := t.Piece(id)
	return unsafe.String(unsafe.SliceData(piece), len(piece))
}

// Token returns the token that stands for exactly this text, added tokens
// included.
func (t *Tokenizer) Token(text string) (int32, bool) {
	if id, ok := t.added.ids[text]; ok {
		return id, true
	}
	id, ok := t.ids[text]
	return id, ok
}

// Decode is the text of tokens, without those that are special.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if !t.Special(id) {
			b.Write(t.Piece(id))
		}
	}
	return b.String()
}

// enter gives a token its text.
func (t *Tokenizer) enter(id int, piece []byte, special bool) error {
	if id < 0 || id >= maxTokens {
		return fmt.Errorf("%w: token %d", ErrFormat, id)
	}
	for len(t.pieces) <= id {
		t.pieces, t.special = append(t.pieces, nil), append(t.special, false)
	}
	t.pieces[id], t.special[id] = piece, special
	return nil
}

// maxTokens limits what a number in a damaged file can allocate.
const maxTokens = 4 << 20
