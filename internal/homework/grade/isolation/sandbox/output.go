package sandbox

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// A Head is an io.Writer that keeps the first Max bytes.
type Head struct {
	bytes.Buffer
	Max int
}

// Write keeps what fits and discards the rest. It never fails, so that the writing program is not stopped.
func (h *Head) Write(p []byte) (int, error) {
	h.Buffer.Write(p[:min(len(p), h.Max-h.Len())])
	return len(p), nil
}

// A Tail is an io.Writer that keeps the last Max bytes.
type Tail struct {
	bytes []byte
	Max   int
}

// Write implements io.Writer. It never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.bytes = append(t.bytes, p[max(0, len(p)-t.Max):]...)
	if excess := len(t.bytes) - t.Max; excess > 0 {
		t.bytes = append(t.bytes[:0], t.bytes[excess:]...)
	}
	return len(p), nil
}

// Bytes returns the part that is kept.
func (t *Tail) Bytes() []byte { return t.bytes }

// Printable returns what a program printed, with ? for invalid UTF-8 and for control characters other than tab and
// newline.
func Printable(text []byte) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r < ' ' && r != '\t' && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, string(text))
}
