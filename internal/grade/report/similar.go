package report

import (
	"io"
	"math"
	"strings"

	"llmmemory/internal/grade/class"
)

// mostPairs keeps the page small enough for a browser.
const mostPairs = 100

// A Similarity is the content of the page of similar submissions.
type Similarity struct {
	Files     []class.Source // the compared files
	Pairs     []class.Pair
	Unread    []string // names of files that could not be read
	Threshold float64
}

// Write writes the page: the pairs, and the sources of each side by side.
func (s Similarity) Write(w io.Writer) error {
	text := map[string][]byte{}
	for _, f := range s.Files {
		text[f.Name] = f.Text
	}
	page := similarPage{Count: len(s.Pairs), Files: len(s.Files), Percent: whole(s.Threshold), Unread: shownAll(s.Unread),
		More: max(0, len(s.Pairs)-mostPairs), Gram: class.Gram, Window: class.Window}
	for i, p := range s.Pairs[:min(mostPairs, len(s.Pairs))] {
		page.Pairs = append(page.Pairs, pair{i + 1, whole(p.Share), newSide(p.A, text[p.A], p.LinesA), newSide(p.B, text[p.B], p.LinesB)})
	}
	return write(w, similarLayout, page)
}

type similarPage struct {
	Count, Files int
	Percent      int
	Pairs        []pair
	More         int // number of pairs that are not shown
	Unread       []string
	Gram, Window int
}

// A pair is two sources, side by side.
type pair struct {
	Number  int
	Percent int
	A, B    side
}

type side struct {
	Name  string
	Lines []line
}

type line struct {
	Number int
	Text   string
	Shared bool
}

func newSide(name string, text []byte, shared []bool) side {
	s := side{Name: shown(name)}
	for i, l := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		s.Lines = append(s.Lines, line{i + 1, strings.TrimSuffix(l, "\r"), i < len(shared) && shared[i]})
	}
	return s
}

// whole returns a share in whole percent, rounded down: 100 means all.
func whole(share float64) int { return int(math.Floor(100*share + 1e-9)) }
