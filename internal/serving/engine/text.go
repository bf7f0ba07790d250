package engine

import (
	"strings"
	"unicode/utf8"
)

// A text is the text of an answer. It holds back an incomplete character at the end, and characters that may be the
// beginning of a stop string.
type text struct {
	stops   []string
	include bool // the text includes the stop string that ends it

	bytes []byte // of an incomplete character
	held  string // complete characters that may begin a stop string
}

// empty returns an empty text with the same stop strings.
func (t *text) empty() text { return text{stops: t.stops, include: t.include} }

// add appends the text of a token. It returns the text to send now, and the stop string that it found or "". Text
// after a stop string is dropped. If mayStop is false, stop strings do not end the text.
func (t *text) add(piece string, mayStop bool) (out, stop string) {
	if len(t.stops) == 0 && len(t.bytes) == 0 && t.held == "" && utf8.ValidString(piece) {
		return piece, ""
	}
	t.bytes = append(t.bytes, piece...)
	whole := wholeRunes(t.bytes)
	t.held += strings.ToValidUTF8(string(t.bytes[:whole]), "\uFFFD")
	t.bytes = append(t.bytes[:0], t.bytes[whole:]...)
	first := -1
	for _, s := range t.stops {
		if i := strings.Index(t.held, s); i >= 0 && (first < 0 || i < first) {
			first, stop = i, s
		}
	}
	if first >= 0 && mayStop {
		if t.include {
			first += len(stop)
		}
		out, t.held = t.held[:first], ""
		return out, stop
	}
	keep := 0
	if mayStop || first < 0 {
		keep = t.partialStop()
	}
	out, t.held = t.held[:len(t.held)-keep], t.held[len(t.held)-keep:]
	return out, ""
}

// partialStop returns the length of the longest suffix of t.held that is also a prefix of a stop string.
func (t *text) partialStop() int {
	longest := 0
	for _, s := range t.stops {
		for n := min(len(s)-1, len(t.held)); n > longest; n-- {
			if strings.HasSuffix(t.held, s[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// rest releases the text that was held back.
func (t *text) rest() string {
	out := t.held + strings.ToValidUTF8(string(t.bytes), "\uFFFD")
	t.held, t.bytes = "", nil
	return out
}

// wholeRunes returns how many bytes at the beginning of b are complete characters.
func wholeRunes(b []byte) int {
	for n := max(0, len(b)-utf8.UTFMax+1); n < len(b); n++ {
		if utf8.RuneStart(b[n]) && !utf8.FullRune(b[n:]) {
			return n
		}
	}
	return len(b)
}
