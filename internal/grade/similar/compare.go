package similar

import (
	"cmp"
	"slices"
)

// A Source is a file to compare.
type Source struct {
	Name string
	Text []byte
}

// A Pair is two files that share code.
type Pair struct {
	A, B   string  // names
	Shared int     // fingerprints that both have
	Share  float64 // of those of the file that has fewer, from 0 to 1
	LinesA []bool  // by line, from 0: it is in what is shared
	LinesB []bool
}

// Threshold is the Share from which on a pair is worth reading. Right submissions
// that were written independently of each other stay below it.
const Threshold = 0.5

// fewest is how many fingerprints a file needs to be compared: less is chance.
const fewest = 12

// Compare returns the pairs with a Share of at least the threshold, the most alike
// first. What the starter files have counts in no pair. The files that could not be
// read are named.
func Compare(files, starter []Source, threshold float64) (pairs []Pair, unread []string) {
	given := map[uint64]bool{}
	for _, s := range starter {
		d, _ := newDocument(s.Text)
		for _, h := range grams(d.tokens) {
			given[h] = true
		}
	}
	documents := make([]document, len(files))
	having := map[uint64][]int{} // by fingerprint: the files
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

// counts is how many fingerprints each two files have in common.
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

// lines marks the lines of a document in which there is a token of a gram that the
// other has, too.
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
