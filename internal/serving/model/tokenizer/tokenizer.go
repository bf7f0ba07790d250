package tokenizer

import (
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/dlclark/regexp2"
)

// spacePrefix is where SentencePiece puts a space before the text.
type spacePrefix uint8

const (
	prefixNever  spacePrefix = iota
	prefixFirst              // before the first part only
	prefixAlways             // before each part between added tokens
)

// A Tokenizer has a vocabulary and the rules by which text becomes tokens.
type Tokenizer struct {
	pieces  [][]byte         // the bytes of each token, or nil
	ids     map[string]int32 // the tokens that ordinary text can become
	special []bool           // tokens that are not text
	bytes   [256]int32       // the token for a byte of text that has no token, or -1
	unknown int32            // the token for text that has no token, or -1

	merges       map[pair]merge // by rank; if nil, merging is by scores
	scores       []float32
	ignoreMerges bool // a word that is in the vocabulary is not split
	characters   bool // words are first split into characters, not into bytes
	prefix       spacePrefix
	nfc          bool // text is normalized to NFC
	patterns     []*regexp2.Regexp
	added        matcher
	first, last  []int32 // tokens at the beginning and at the end of a text
	ends         []int32 // tokens that end an answer
	infill       *Infill // nil if there is none

	sizes func() sizes // measure, computed once
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

// Special reports whether a token is not text but, for example, the beginning or the end of a message.
func (t *Tokenizer) Special(id int32) bool {
	return id >= 0 && int(id) < len(t.special) && t.special[id]
}

// Piece returns the bytes that a token decodes to. They may be part of a character. The caller must not change them.
func (t *Tokenizer) Piece(id int32) []byte {
	if id < 0 || int(id) >= len(t.pieces) {
		return nil
	}
	return t.pieces[id]
}

// Text returns Piece as a string, in the same memory.
func (t *Tokenizer) Text(id int32) string {
	piece := t.Piece(id)
	return unsafe.String(unsafe.SliceData(piece), len(piece))
}

// Token returns the token with exactly this text, which may be an added token.
func (t *Tokenizer) Token(text string) (int32, bool) {
	if id, ok := t.added.ids[text]; ok {
		return id, true
	}
	id, ok := t.ids[text]
	return id, ok
}

// Decode returns the text of tokens, without special tokens.
func (t *Tokenizer) Decode(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if !t.Special(id) {
			b.Write(t.Piece(id))
		}
	}
	return b.String()
}

// enter adds a token. id is its number, and piece has its bytes. The caller has checked that id is below maxTokens.
func (t *Tokenizer) enter(id int, piece []byte, special bool) {
	for len(t.pieces) <= id {
		t.pieces, t.special = append(t.pieces, nil), append(t.special, false)
	}
	t.pieces[id], t.special[id] = piece, special
}

func (t *Tokenizer) addText(id int, text string) {
	p := t.piece(text)
	t.enter(id, p, false)
	t.ids[string(p)] = int32(id)
}

// addByte adds token id as the token of a byte if text is the name of a byte, such as <0x41>. It then returns true. It
// returns false, and adds nothing, if text is not such a name.
func (t *Tokenizer) addByte(id int, text string) bool {
	var b byte
	if _, err := fmt.Sscanf(text, "<0x%02X>", &b); err != nil || len(text) != 6 {
		return false
	}
	t.enter(id, []byte{b}, false)
	t.bytes[b] = int32(id)
	return true
}

// maxTokens limits the memory that this package allocates if a damaged file has too large a token number.
const maxTokens = 4 << 20
