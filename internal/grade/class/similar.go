package class

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"

	"llmmemory/internal/ctree"
)

// A Source is a file to compare.
type Source struct {
	Name string
	Text []byte
}

// A Pair is two files that share code.
type Pair struct {
	A, B   string  // names
	Shared int     // number of common fingerprints
	Share  float64 // part of the fingerprints of the file that has fewer
	LinesA []bool  // for each line, whether it is in shared code
	LinesB []bool
}

// Threshold is the Share from which a pair is worth reading. Right submissions that were written
// independently stay below it.
const Threshold = 0.5

// fewest is the number of fingerprints that a file needs: with less, similarity is chance.
const fewest = 12

// Similar returns the pairs with a Share of at least the threshold, the most alike
// first, and the names of the files that could not be read. Code of the starter files
// counts in no pair. The pairs are for people to read: they prove nothing.
//
// Similar uses winnowing (Schleimer, Wilkerson, Aiken: Local Algorithms for Document
// Fingerprinting, SIGMOD 2003) over the tokens of C. All names count as equal, and so do
// all strings. Comments and directives are left out. Every Gram consecutive tokens are
// hashed, and the least of every Window consecutive hashes is a fingerprint: two files
// that share Gram + Window - 1 consecutive tokens share at least one fingerprint.
func Similar(files, starter []Source, threshold float64) (pairs []Pair, unread []string) {
	given := map[uint64]bool{}
	for _, s := range starter {
		d, _ := newDocument(s.Text)
		for _, h := range grams(d.tokens) {
			given[h] = true
		}
	}
	documents := make([]document, len(files))
	having := map[uint64][]int{} // files with each fingerprint
	for i, f := range files {
		d, err := newDocument(f.Text)
		if err != nil {
			unread = append(unread, f.Name)
			continue
		}
		for h := range d.prints {
			if given[h] {
				delete(d.prints, h)
				continue
			}
			having[h] = append(having[h], i)
		}
		documents[i] = d
	}
	for at, shared := range counts(having) {
		a, b := at[0], at[1]
		least := min(len(documents[a].prints), len(documents[b].prints))
		share := float64(shared) / float64(max(least, 1))
		if least < fewest || share < threshold {
			continue
		}
		pairs = append(pairs, Pair{A: files[a].Name, B: files[b].Name, Shared: shared, Share: share,
			LinesA: lines(documents[a], documents[b]), LinesB: lines(documents[b], documents[a])})
	}
	slices.SortFunc(pairs, func(a, b Pair) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(b.Shared, a.Shared), cmp.Compare(a.A, b.A), cmp.Compare(a.B, b.B))
	})
	return pairs, unread
}

// counts returns how many fingerprints each two files have in common.
func counts(having map[uint64][]int) map[[2]int]int {
	all := map[[2]int]int{}
	for _, files := range having {
		for i, a := range files {
			for _, b := range files[i+1:] {
				all[[2]int{a, b}]++
			}
		}
	}
	return all
}

// lines marks the lines of a document with a token of a gram that other also has.
func lines(d, other document) []bool {
	if len(d.tokens) == 0 {
		return nil
	}
	marked := make([]bool, d.tokens[len(d.tokens)-1].Line)
	for h, places := range d.prints {
		if other.prints[h] == nil {
			continue
		}
		for _, at := range places {
			for _, t := range d.tokens[at : at+Gram] {
				marked[t.Line-1] = true
			}
		}
	}
	return marked
}

// The sizes, in tokens. Gram is longer than any sequence that the handout requires of every
// submission, such as a loop over 16 entries.
const (
	Gram   = 24
	Window = 8
)

// A document is the tokens and fingerprints of a file.
type document struct {
	tokens []ctree.Token
	prints map[uint64][]int // places where the gram of each fingerprint begins
}

func newDocument(text []byte) (document, error) {
	tokens, err := ctree.Tokens(text)
	return document{tokens, fingerprints(tokens)}, err
}

// fold returns the text that represents a token in comparisons.
func fold(t ctree.Token) string {
	switch {
	case t.Name():
		return "name"
	case strings.HasSuffix(t.Text, `"`):
		return "string"
	}
	return t.Text
}

// grams returns the hashes of all sequences of Gram tokens.
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

// fingerprints returns, of each Window consecutive grams, the one with the least hash; the last
// one if there are several.
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
