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
	plain []rune // the characters of the marks first, first+1, ...
	first rune
}

// ErrExhausted is the error for texts that leave too few unused private-use characters in a row.
var ErrExhausted = errors.New("the texts have too many private-use characters")

// lowest and highest are the first and the last private-use character of plane 16. In UTF-8, only the characters of
// this plane begin with the byte lead.
const (
	lowest  = 0x100000
	highest = 0x10fffd
	lead    = 0xf4
)

// New returns marks for chars. The caller will replace characters by marks in texts, but not in beside. The marks occur
// neither in texts nor in beside. New returns nil if no text in texts contains one of chars.
func New(chars []rune, texts iter.Seq[string], beside string) (*Marks, error) {
	if len(chars) == 0 {
		return nil, nil
	}
	set, needed := string(chars), false
	var used [highest - lowest + 1]bool
	use := func(text string) {
		if strings.IndexByte(text, lead) < 0 {
			return
		}
		for _, r := range text {
			if r >= lowest && r <= highest {
				used[r-lowest] = true
			}
		}
	}
	use(beside)
	for text := range texts {
		needed = needed || strings.ContainsAny(text, set)
		use(text)
	}
	if !needed {
		return nil, nil
	}
	for from, at := 0, 0; at < len(used); at++ {
		if used[at] {
			from = at + 1
		}
		if at-from+1 < len(chars) {
			continue
		}
		m := &Marks{marks: map[rune]rune{}, plain: chars, first: lowest + rune(from)}
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
func (m *Marks) In(text string) bool { return m != nil && strings.IndexByte(text, lead) >= 0 }

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

// Index returns the byte range of the first occurrence of sub in text, or of the last one if last is true, or -1, -1. A
// mark counts as equal to the character that it replaces.
func (m *Marks) Index(text, sub string, last bool) (from, to int) {
	find := strings.Index
	if last {
		find = strings.LastIndex
	}
	sub = m.Plain(sub)
	if !m.In(text) {
		if from = find(text, sub); from < 0 {
			return -1, -1
		}
		return from, from + len(sub)
	}
	at := find(m.Plain(text), sub)
	if at < 0 {
		return -1, -1
	}
	from = m.offset(text, at)
	return from, from + m.offset(text[from:], len(sub))
}

// offset returns the byte offset in text of the character at byte n of m.Plain(text).
func (m *Marks) offset(text string, n int) int {
	for at, r := range text {
		if n <= 0 {
			return at
		}
		n -= len(string(m.Char(r)))
	}
	return len(text)
}
