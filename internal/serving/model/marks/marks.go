// Package marks keeps characters that come from a client apart from those of a chat template, while the template makes
// one text of both. Of a client's texts, the characters that special tokens need are replaced by private-use
// characters, their marks. In the text that the template makes, a special token with a mark is not one: the client
// wrote a part of it.
package marks

import (
	"errors"
	"iter"
	"strings"
)

// Marks replace characters, each by one that none of the texts has. Without marks, as nil, texts stay as they are. Marks
// do not change and are safe for concurrent use.
type Marks struct {
	marks map[rune]rune
	plain []rune // of the marks from first on
	first rune
}

// ErrNoRoom is the error of texts that have nearly all private-use characters.
var ErrNoRoom = errors.New("the texts have too many private-use characters")

// The private-use characters of plane 16, in UTF-8 the only characters that begin with the byte lead.
const (
	lowest  = 0x100000
	highest = 0x10fffd
	lead    = 0xf4
)

// New returns marks for some characters. None of the texts has them, and neither has beside, a text that is not marked.
// It returns nil if none of the texts has one of the characters.
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
	return nil, ErrNoRoom
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

// Char is the character that a mark stands for, or r if that is no mark.
func (m *Marks) Char(r rune) rune {
	if m == nil || r < m.first || r >= m.first+rune(len(m.plain)) {
		return r
	}
	return m.plain[r-m.first]
}

// In reports whether a text may have marks.
func (m *Marks) In(text string) bool { return m != nil && strings.IndexByte(text, lead) >= 0 }

// Plain is a text with characters in the place of their marks.
func (m *Marks) Plain(text string) string {
	if !m.In(text) {
		return text
	}
	return strings.Map(m.Char, text)
}

// Split returns the plain text, and where in it characters stand that were marked, in bytes.
func (m *Marks) Split(text string) (plain string, places []int) {
	if !m.In(text) {
		return text, nil
	}
	var b strings.Builder
	for _, r := range text {
		char := m.Char(r)
		if char != r {
			places = append(places, b.Len())
		}
		b.WriteRune(char)
	}
	return b.String(), places
}

// Index is where the plain text of sub stands first in that of a text, or last: its bytes of the text itself, both -1 if
// there is none.
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

// offset is the place in a text of byte n of its plain text.
func (m *Marks) offset(text string, n int) int {
	for at, r := range text {
		if n <= 0 {
			return at
		}
		n -= len(string(m.Char(r)))
	}
	return len(text)
}
