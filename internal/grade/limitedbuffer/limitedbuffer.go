// Package limitedbuffer keeps a limited part of the output of an untrusted program.
package limitedbuffer

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// A Buffer keeps the first Most bytes that are written to it, and takes all.
type Buffer struct {
	bytes.Buffer
	Most int
}

// A Tail keeps the last Most bytes that are written to it, and takes all.
type Tail struct {
	bytes []byte
	Most  int
}

// Write implements io.Writer. It never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.bytes = append(t.bytes, p[max(0, len(p)-t.Most):]...)
	if over := len(t.bytes) - t.Most; over > 0 {
		t.bytes = append(t.bytes[:0], t.bytes[over:]...)
	}
	return len(p), nil
}

// Bytes returns the part that is kept.
func (t *Tail) Bytes() []byte { return t.bytes }

// Write implements io.Writer. It never fails, so the program is not stopped by it.
func (b *Buffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), b.Most-b.Len())])
	return len(p), nil
}

// Printable returns what a program has printed, with ? for control characters.
func Printable(text []byte) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r < ' ' && r != '\t' && r != '\n' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, string(text))
}
