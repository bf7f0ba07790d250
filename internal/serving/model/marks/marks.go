// Package marks distinguishes a client's characters from the template's in a rendered chat template. Some characters
// occur in special tokens. Before rendering, the package replaces these characters in the client's texts by private-use
// characters, their marks. If the text of a special token contains a mark after rendering, the client wrote a part of
// it. It is then not a special token.
package marks

import (
	"errors"
	"iter"
	"strings"
)

// Marks maps characters to marks. A mark is a private-use character that occurs in none of the texts given to New. A
// nil *Marks changes no text. A Marks never changes and is safe for concurrent use.
type Marks struct {
	marks map[rune]rune
	plain []rune // plain[i] is the character whose mark is first+i
	first rune   // the mark with the smallest code point
}

// ErrExhausted is the error of New if the texts and the template contain too many private-use characters. New needs a
// range of private-use characters of plane 16 that do not occur in them, with one character for each mark.
var ErrExhausted = errors.New("the texts have too many private-use characters")

// lowest and highest are the first and the last private-use character of plane 16. leadByte is the first byte of the
// characters of this plane in UTF-8. No other character begins with it.
const (
	lowest   = 0x100000
	highest  = 0x10fffd
	leadByte = 0xf4
)

// New returns marks for chars. The marks are characters that occur neither in texts nor in template. The caller will
// replace chars by their marks in texts, but not in template. New returns nil if no text in texts contains one of
// chars.
func New(chars []rune, texts iter.Seq[string], template string) (*Marks, error) {
	if len(chars) == 0 {
		return nil, nil
	}
	set, needed := string(chars), false
	var used [highest - lowest + 1]bool
	use := func(text string) {
		if strings.IndexByte(text, leadByte) < 0 {
			return
		}
		for _, r := range text {
			if r >= lowest && r <= highest {
				used[r-lowest] = true
			}
		}
	}
	use(template)
	for text := range texts {
		needed = needed || strings.ContainsAny(text, set)
		use(text)
	}
	if !needed {
		return nil, nil
	}
	for start, i := 0, 0; i < len(used); i++ {
		if used[i] {
			start = i + 1
		}
		if i-start+1 < len(chars) {
			continue
		}
		m := &Marks{marks: map[rune]rune{}, plain: chars, first: lowest + rune(start)}
		for i, c := range chars {
			m.marks[c] = m.first + rune(i)
		}
		return m, nil
	}
	return nil, ErrExhausted
}

// Mark replaces the characters of a text by their marks.
func (m *Marks) Mark(text string) string {
	if m == nil {
		return text
	}
	return strings.Map(func(r rune) rune {
		if mark, ok := m.marks[r]; ok {
			return mark
		}
		return r
	}, text)
}

// Char returns the character of a mark, or r if r is not a mark.
func (m *Marks) Char(r rune) rune {
	if m == nil || r < m.first || r >= m.first+rune(len(m.plain)) {
		return r
	}
	return m.plain[r-m.first]
}

// In reports whether a text may contain marks.
func (m *Marks) In(text string) bool { return m != nil && strings.IndexByte(text, leadByte) >= 0 }

// Plain replaces the marks of a text by their characters.
func (m *Marks) Plain(text string) string {
	if !m.In(text) {
		return text
	}
	return strings.Map(m.Char, text)
}

// Split replaces the marks of a text by their characters. It also returns the byte offsets of these characters in
// plain.
func (m *Marks) Split(text string) (plain string, marked []int) {
	if !m.In(text) {
		return text, nil
	}
	var b strings.Builder
	for _, r := range text {
		char := m.Char(r)
		if char != r {
			marked = append(marked, b.Len())
		}
		b.WriteRune(char)
	}
	return b.String(), marked
}

// Index returns the byte range of the first occurrence of sub in text. If last is true, it returns the range of the
// last occurrence. If sub does not occur in text, it returns -1, -1. A mark counts as equal to the character that it
// replaces.
func (m *Marks) Index(text, sub string, last bool) (start, end int) {
	find := strings.Index
	if last {
		find = strings.LastIndex
	}
	sub = m.Plain(sub)
	if !m.In(text) {
		if start = find(text, sub); start < 0 {
			return -1, -1
		}
		return start, start + len(sub)
	}
	i := find(m.Plain(text), sub)
	if i < 0 {
		return -1, -1
	}
	start = m.Offset(text, i)
	return start, start + m.Offset(text[start:], len(sub))
}

// Offset converts a byte offset in m.Plain(text) to a byte offset in text. The character at byte n of m.Plain(text)
// begins at the returned offset of text. The offsets can differ, because a mark and its character can have different
// lengths in UTF-8.
func (m *Marks) Offset(text string, n int) int {
	for i, r := range text {
		if n <= 0 {
			return i
		}
		n -= len(string(m.Char(r)))
	}
	return len(text)
}
