package tokenizer

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode"

	"llmmemory/internal/serving/model/marks"
)

// A matcher finds the leftmost added token in a text. If several begin there, it finds the longest.
type matcher struct {
	ids    map[string]int32
	strips map[string]strip
	starts [256][]string // by first byte, longest first
}

// strip says whether an added token includes the white space to its left and the white space to its right in the text.
type strip struct{ left, right bool }

func (m *matcher) add(text string, id int32, s strip) {
	if text == "" {
		return
	}
	if m.ids == nil {
		m.ids, m.strips = map[string]int32{}, map[string]strip{}
	}
	if _, ok := m.ids[text]; !ok {
		list := append(m.starts[text[0]], text)
		slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
		m.starts[text[0]] = list
	}
	m.ids[text], m.strips[text] = id, s
}

// next finds the first added token in text for which allowed returns true. It returns the text before the token, the
// token, and the text after it. id is -1 if there is no such token. allowed gets the token and its byte range in text.
func (m *matcher) next(text string, allowed func(start, end int, id int32) bool) (before string, id int32, after string) {
	for i := range len(text) {
		for _, token := range m.starts[text[i]] {
			if !strings.HasPrefix(text[i:], token) || !allowed(i, i+len(token), m.ids[token]) {
				continue
			}
			before, after = text[:i], text[i+len(token):]
			if m.strips[token].left {
				before = strings.TrimRightFunc(before, unicode.IsSpace)
			}
			if m.strips[token].right {
				after = strings.TrimLeftFunc(after, unicode.IsSpace)
			}
			return before, m.ids[token], after
		}
	}
	return text, -1, ""
}

// EncodeMarked encodes a rendered chat template as EncodeUpTo encodes a text. A mark in text replaces a character that
// a client wrote; m says which character it is. EncodeMarked encodes the text with these characters instead of the
// marks. But it encodes the name of a protected token as ordinary text, and not as the token, if a mark replaced one of
// the name's characters.
//
// The protected tokens are the special tokens, the tokens that end an answer, and the tokens for filling in the middle
// of a text.
func (t *Tokenizer) EncodeMarked(
	ctx context.Context, text string, m *marks.Marks, addSpecial bool, limit int,
) ([]int32, error) {
	plain, marked := m.Split(strings.ToValidUTF8(text, "\uFFFD"))
	return t.encode(ctx, plain, marked, addSpecial, limit)
}

// Edges returns the characters to mark in clients' texts for EncodeMarked. For each protected token, these are the
// first and the last sign of its name. A sign is a character other than a letter, digit or space. If the name has no
// sign, its first character is marked.
func (t *Tokenizer) Edges() []rune { return t.edges() }

func (t *Tokenizer) findEdges() []rune {
	edges := map[rune]bool{}
	for text, id := range t.added.ids {
		if !t.protected(id) {
			continue
		}
		all := []rune(text)
		signs := slices.DeleteFunc(slices.Clone(all), func(r rune) bool {
			return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsSpace(r)
		})
		if len(signs) == 0 {
			signs = all[:1]
		}
		edges[signs[0]], edges[signs[len(signs)-1]] = true, true
	}
	return slices.Sorted(maps.Keys(edges))
}

// protected reports whether text from a client must not become this token.
func (t *Tokenizer) protected(id int32) bool {
	return t.Special(id) || slices.Contains(t.ends, id) || t.infill.contains(id)
}

// seal removes the added tokens that are protected from the vocabulary of words and from the results of merges.
// Encoding then makes such a token only where the matcher finds its whole name in the text.
func (t *Tokenizer) seal() {
	hidden := map[int32]bool{}
	for text, id := range t.added.ids {
		piece := string(t.piece(text))
		if found, ok := t.ids[piece]; ok && found == id && t.protected(id) {
			hidden[id] = true
			delete(t.ids, piece)
		}
	}
	if len(hidden) > 0 {
		maps.DeleteFunc(t.merges, func(_ pair, m merge) bool { return hidden[m.id] })
	}
}
