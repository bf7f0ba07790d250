package page

import (
	"cmp"
	"fmt"
	"slices"
)

// A sentence of the handout, and who breaks it.
type sentence struct {
	Text     string
	Students []mention
}

// A mention is a student whose page tells of it.
type mention struct{ Name, URL string }

// mostNamed keeps the page of a large class small.
const mostNamed = 40

// broken ranks the sentences by how many students break them.
func broken(entries []Entry) []sentence {
	var all []sentence
	at := map[string]int{}
	for _, e := range entries {
		if e.Report == nil {
			continue
		}
		seen := map[string]bool{}
		for i, f := range e.Report.Findings {
			if f.Sentence == "" || seen[f.Sentence] {
				continue
			}
			seen[f.Sentence] = true
			n, known := at[f.Sentence]
			if !known {
				n = len(all)
				at[f.Sentence] = n
				all = append(all, sentence{Text: f.Sentence})
			}
			all[n].Students = append(all[n].Students, mention{shown(e.Name), link(e.File, fmt.Sprintf("finding-%d", i+1))})
		}
	}
	slices.SortFunc(all, func(a, b sentence) int {
		return cmp.Or(len(b.Students)-len(a.Students), cmp.Compare(a.Text, b.Text))
	})
	return all
}

// Count is how many students break it.
func (s sentence) Count() int { return len(s.Students) }

// Named are those that are named.
func (s sentence) Named() []mention { return s.Students[:min(mostNamed, len(s.Students))] }

// Unnamed is how many are not.
func (s sentence) Unnamed() int { return len(s.Students) - len(s.Named()) }
