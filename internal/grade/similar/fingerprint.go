package similar

import (
	"hash/fnv"
	"strings"

	"llmmemory/internal/ctree"
)

// The sizes, in tokens. Gram is longer than what the handout makes everybody write
// in a row, such as a loop over 16 entries.
const (
	Gram   = 24
	Window = 8
)

// A document is a file as it is compared.
type document struct {
	tokens []ctree.Token
	prints map[uint64][]int // where each fingerprint's gram begins
}

func newDocument(text []byte) (document, error) {
	tokens, err := ctree.Tokens(text)
	return document{tokens, fingerprints(tokens)}, err
}

// fold is what a token is compared as.
func fold(t ctree.Token) string {
	switch {
	case t.Name():
		return "name"
	case strings.HasSuffix(t.Text, `"`):
		return "string"
	}
	return t.Text
}

// grams are the hashes of each Gram tokens in a row.
func grams(tokens []ctree.Token) []uint64 {
	var all []uint64
	for i := 0; i+Gram <= len(tokens); i++ {
		h := fnv.New64a()
		for _, t := range tokens[i : i+Gram] {
			_, _ = h.Write([]byte(fold(t)))
			_, _ = h.Write([]byte{0})
		}
		all = append(all, h.Sum64())
	}
	return all
}

// fingerprints takes of each Window grams in a row the one with the least hash, the
// last one of several.
func fingerprints(tokens []ctree.Token) map[uint64][]int {
	hashes := grams(tokens)
	prints := map[uint64][]int{}
	taken := -1
	for from := 0; from+min(Window, len(hashes)) <= len(hashes) && len(hashes) > 0; from++ {
		least := from
		for i := from; i < from+min(Window, len(hashes)); i++ {
			if hashes[i] <= hashes[least] {
				least = i
			}
		}
		if least != taken {
			taken = least
			prints[hashes[least]] = append(prints[hashes[least]], least)
		}
	}
	return prints
}
