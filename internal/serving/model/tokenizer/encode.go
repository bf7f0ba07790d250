package tokenizer

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"golang.org/x/text/unicode/norm"
)

// ErrTooMany is the error for a text with more tokens than the limit given to EncodeUpTo.
var ErrTooMany = errors.New("the text has too many tokens")

// Encode converts a text to tokens. Names of added tokens in the text become these tokens. If addSpecial is true,
// Encode adds the model's special tokens for the beginning and the end of a text. If one token begins (or ends) a text
// and the text already begins (or ends) with it, the result has it only once there.
func (t *Tokenizer) Encode(text string, addSpecial bool) []int32 {
	out, _ := t.EncodeUpTo(context.Background(), text, addSpecial, math.MaxInt)
	return out
}

// EncodeUpTo is like Encode, but returns ErrTooMany if the text has more than limit tokens. If the length of the
// text already shows that, it returns the error before it encodes the text. If ctx ends, EncodeUpTo stops and returns
// the error of ctx.
func (t *Tokenizer) EncodeUpTo(ctx context.Context, text string, addSpecial bool, limit int) ([]int32, error) {
	return t.encode(ctx, strings.ToValidUTF8(text, "\uFFFD"), nil, addSpecial, limit)
}

// encode converts a text to tokens. marked has the sorted byte offsets of the marked characters of the text. These
// characters cannot be part of a protected token.
func (t *Tokenizer) encode(ctx context.Context, text string, marked []int, addSpecial bool, limit int) ([]int32, error) {
	if !t.Fits(limit)(text) {
		return nil, ErrTooMany
	}
	e := encoder{t: t, ctx: ctx, limit: limit, window: window}
	if addSpecial {
		e.out = append(e.out, t.first...)
	}
	e.parts(text, addSpecial, func(start, end int, id int32) bool {
		i, _ := slices.BinarySearch(marked, start)
		return i == len(marked) || marked[i] >= end || !t.protected(id)
	})
	if addSpecial {
		e.out = append(e.out, t.last...)
	}
	if e.stopped() {
		return nil, e.err
	}
	return e.out, nil
}

// parts appends the tokens of a text: the added tokens in it for which allowed returns true, and the tokens of the
// parts between them.
func (e *encoder) parts(text string, addSpecial bool, allowed func(start, end int, id int32) bool) {
	t, whole := e.t, len(text)
	for begin := true; text != "" && !e.stopped(); begin = false {
		done := whole - len(text)
		before, id, after := t.added.next(text, func(start, end int, id int32) bool { return allowed(done+start, done+end, id) })
		if before != "" {
			e.part(before, begin)
		}
		twice := addSpecial && (begin && before == "" && isSingle(t.first, id) || after == "" && isSingle(t.last, id))
		if id >= 0 && !twice {
			e.out = append(e.out, id)
		}
		text = after
	}
}

// isSingle reports whether tokens has exactly one element, id.
func isSingle(tokens []int32, id int32) bool { return len(tokens) == 1 && tokens[0] == id }

func (e *encoder) part(text string, begin bool) {
	t := e.t
	if t.nfc {
		text = norm.NFC.String(text)
	}
	if t.characters {
		text = strings.ReplaceAll(text, "▁", " ")
	}
	prefix := t.prefix == prefixAlways || t.prefix == prefixFirst && begin
	if prefix && !e.joined && (t.characters || !strings.HasPrefix(text, " ")) {
		text = " " + text
	}
	e.joined = false
	if len(t.patterns) == 0 {
		e.word(text)
		return
	}
	isolate([]rune(text), t.patterns, func(word string) bool {
		e.word(word)
		return !e.stopped()
	})
}

// isolate splits text into words, and calls word with them in order. It splits the text into the matches of the first
// pattern and the gaps between them. The other patterns then split each of these pieces in the same way. If word
// returns false, isolate stops and returns false.
func isolate(text []rune, patterns []*regexp2.Regexp, word func(string) bool) bool {
	if len(patterns) == 0 {
		return word(string(text))
	}
	p, start := patterns[0], 0
	for m, err := p.FindRunesMatch(text); m != nil && err == nil; m, err = p.FindNextMatch(m) {
		if m.Length == 0 {
			continue
		}
		if m.Index > start && !isolate(text[start:m.Index], patterns[1:], word) {
			return false
		}
		start = m.Index + m.Length
		if !isolate(text[m.Index:start], patterns[1:], word) {
			return false
		}
	}
	return start == len(text) || isolate(text[start:], patterns[1:], word)
}

// stopped reports whether encoding must stop, and sets e.err to the reason.
func (e *encoder) stopped() bool {
	switch {
	case e.err != nil:
	case len(e.out) > e.limit:
		e.err = ErrTooMany
	default:
		e.err = e.ctx.Err()
	}
	return e.err != nil
}

// sizes has properties of the vocabulary that give a lower bound of the number of tokens of a text of a given
// length.
type sizes struct {
	mergeable int // bytes of the longest token that merging makes

	// maxBytes is an upper bound of the bytes of text in one token. If strips is true, it does not count white space.
	// maxBytes is 0 if there is no limit. There is no limit if some bytes have no token, because a long run of such bytes
	// can become a single unknown token, or no token at all.
	maxBytes int
	strips   bool // added tokens include adjacent white space
}

// maxShrinking is an upper bound of the factor by which normalization shortens a text. NFC replaces U+1FBE U+0308
// U+0301 (7 bytes) by U+0390 (2 bytes), and SentencePiece replaces U+2581 (3 bytes) by a space.
const maxShrinking = 4

func (t *Tokenizer) measure() (z sizes) {
	for text := range t.ids {
		z.mergeable = max(z.mergeable, len(text))
	}
	z.maxBytes = max(z.mergeable, 1)
	if t.nfc || t.characters {
		z.maxBytes *= maxShrinking
	}
	for text := range t.added.ids {
		z.maxBytes = max(z.maxBytes, len(text))
	}
	for _, s := range t.added.strips {
		z.strips = z.strips || s.left || s.right
	}
	for b, id := range t.bytes {
		if _, text := t.ids[string([]byte{byte(b)})]; id < 0 && (!text || t.characters && b >= utf8.RuneSelf) {
			z.maxBytes = 0
		}
	}
	return z
}

// Fits returns a function to be called with consecutive pieces of a text. The function returns false as soon as the
// length of the pieces shows that the text has more than the given number of tokens. If it returns true, the text may
// still have more tokens.
func (t *Tokenizer) Fits(tokens int) func(piece string) bool {
	z := t.sizes()
	if z.maxBytes == 0 || tokens > math.MaxInt/z.maxBytes {
		return func(string) bool { return true }
	}
	rest := tokens * z.maxBytes
	return func(piece string) bool {
		rest -= len(piece)
		if z.strips {
			for _, r := range piece {
				if unicode.IsSpace(r) {
					rest += utf8.RuneLen(r)
				}
			}
		}
		return rest >= 0
	}
}
