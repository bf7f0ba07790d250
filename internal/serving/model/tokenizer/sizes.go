package tokenizer

import (
	"math"
	"unicode"
	"unicode/utf8"
)

// sizes bound the length of a text by the number of its tokens.
type sizes struct {
	mergeable int // bytes of the longest token that merging makes

	// most is the most bytes of a text that become one token, white space excluded if strips is true. It is 0 if there
	// is no bound: the text has characters that are no tokens, of which any number becomes one or none.
	most   int
	strips bool // added tokens take the white space beside them
}

// maxShrinking is how many times shorter normalization makes a text, at most. NFC writes U+1FBE U+0308 U+0301 (7 bytes)
// as U+0390 (2 bytes), and SentencePiece U+2581 (3 bytes) as a space.
const maxShrinking = 4

func (t *Tokenizer) measure() (z sizes) {
	for text := range t.ids {
		z.mergeable = max(z.mergeable, len(text))
	}
	z.most = max(z.mergeable, 1)
	if t.composed || t.characters {
		z.most *= maxShrinking
	}
	for text := range t.added.ids {
		z.most = max(z.most, len(text))
	}
	for _, s := range t.added.strips {
		z.strips = z.strips || s.left || s.right
	}
	for b, id := range t.bytes {
		if _, text := t.ids[string([]byte{byte(b)})]; id < 0 && (!text || t.characters && b >= utf8.RuneSelf) {
			z.most = 0
		}
	}
	return z
}

// Room returns a function that is given a text piece by piece. It returns false as soon as the text has more tokens
// than the given number by its length alone. The text may have more if it returns true.
func (t *Tokenizer) Room(tokens int) func(piece string) bool {
	z := t.sizes()
	if z.most == 0 || tokens > math.MaxInt/z.most {
		return func(string) bool { return true }
	}
	left := tokens * z.most
	return func(piece string) bool {
		left -= len(piece)
		if z.strips {
			for _, r := range piece {
				if unicode.IsSpace(r) {
					left += utf8.RuneLen(r)
				}
			}
		}
		return left >= 0
	}
}
