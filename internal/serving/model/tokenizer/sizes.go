package tokenizer

import (
	"math"
	"unicode"
	"unicode/utf8"
)

// sizes bound the length of a text by the number of its tokens.
type sizes struct {
	mergeable int // bytes of the longest token that merging makes

	// maxBytes is the largest number of bytes of a text that become one token, not counting white space if strips
	// is true. It is 0 if there is no bound: some characters are not in the vocabulary, and any number of them
	// becomes one token or none.
	maxBytes int
	strips   bool // added tokens include adjacent white space
}

// maxShrinking is the largest factor by which normalization shortens a text. NFC writes U+1FBE U+0308 U+0301 (7 bytes)
// as U+0390 (2 bytes), and SentencePiece U+2581 (3 bytes) as a space.
const maxShrinking = 4

func (t *Tokenizer) measure() (z sizes) {
	for text := range t.ids {
		z.mergeable = max(z.mergeable, len(text))
	}
	z.maxBytes = max(z.mergeable, 1)
	if t.composed || t.characters {
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

// Fits returns a function to call with the pieces of a text, one after the other. It returns false as soon as the
// length shows that the text has more than the given number of tokens. If it returns true, the text may still have
// more.
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
