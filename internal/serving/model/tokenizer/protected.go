package tokenizer

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode"

	"llmmemory/internal/serving/model/marks"
)

// EncodeMarked is EncodeUpTo for a text that a chat template has made, in which what comes from a client is marked.
// Special tokens, and those that end an answer, are found only where nothing is marked; elsewhere they are text.
func (t *Tokenizer) EncodeMarked(
	ctx context.Context, text string, m *marks.Marks, around bool, most int,
) ([]int32, error) {
	plain, places := m.Split(strings.ToValidUTF8(text, "\uFFFD"))
	return t.encode(ctx, plain, places, around, most)
}

// Edges are the characters to mark in the texts of clients for EncodeMarked: of each special token, the first and the
// last that are neither letters nor digits nor spaces, or the first character if it has no other ones.
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

// protected reports whether a client's text must not become a token.
func (t *Tokenizer) protected(id int32) bool { return t.Special(id) || slices.Contains(t.ends, id) }

// seal makes special tokens unreachable for text that is cut into words: only their names become them.
func (t *Tokenizer) seal() {
	hidden := map[int32]bool{}
	for text, id := range t.added.ids {
		if of, ok := t.ids[text]; ok && of == id && t.protected(id) {
			hidden[id] = true
			delete(t.ids, text)
		}
	}
	if len(hidden) > 0 {
		maps.DeleteFunc(t.merges, func(_ pair, m merge) bool { return hidden[m.id] })
	}
}
