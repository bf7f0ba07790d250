package engine

import (
	"strings"
	"unicode/utf8"
)

// A text is the text of an answer as it grows. It gives out whole characters only, and holds back
// what may be the beginning of a stop string.
type text struct {
	stops   []string
	include bool // a stop is text, too

	bytes []byte // of a character that is not yet complete
	held  string // whole characters that may begin a stop
}

// empty is a text with the same stops.
func (t *text) empty() text { return text{stops: t.stops, include: t.include} }

// add appends the text of a token and returns what can be given out, and the stop that was found, or "". What comes
// after a stop is not given out. With mayStop false stops are text.
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
		keep = t.mayBegin()
	}
	out, t.held = t.held[:len(t.held)-keep], t.held[len(t.held)-keep:]
	return out, ""
}

// mayBegin is how many bytes at the end of held may be the beginning of a stop.
func (t *text) mayBegin() int {
	most := 0
	for _, s := range t.stops {
		for n := min(len(s)-1, len(t.held)); n > most; n-- {
			if strings.HasSuffix(t.held, s[:n]) {
				most = n
			}
		}
	}
	return most
}

// rest is what was held back.
func (t *text) rest() string {
	out := t.held + strings.ToValidUTF8(string(t.bytes), "\uFFFD")
	t.held, t.bytes = "", nil
	return out
}

// wholeRunes is how many bytes come before a character that is not yet complete.
func wholeRunes(b []byte) int {
	for n := 1; n <= min(utf8.UTFMax-1, len(b)); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if utf8.FullRune(b[len(b)-n:]) {
				return len(b)
			}
			return len(b) - n
		}
	}
	return len(b)
}
