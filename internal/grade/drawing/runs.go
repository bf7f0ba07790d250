package drawing

import (
	"fmt"

	"llmmemory/internal/course"
	"llmmemory/internal/grade/compare"
)

// A run is entries of a table that are alike at every moment: all of them -1, or
// of blocks that follow each other.
type run struct {
	from, to    int // entries from, ..., to-1
	first, last [moments]int32
	there       [moments]bool
	unmapped    bool // at all moments
	full        bool // it is whole tables: this number, from that slot on
	slot, slots int
}

// follows reports whether r goes on where the run ends.
func (a *run) follows(r run) bool {
	if a.there != r.there || a.unmapped != r.unmapped {
		return false
	}
	for i := range a.last {
		switch {
		case !a.there[i]:
		case a.last[i] < 0:
			if r.first[i] != a.last[i] {
				return false
			}
		case r.first[i] != a.last[i]+1:
			return false
		}
	}
	return true
}

func runsOf(at [moments]*compare.Table) []run {
	var runs []run
	for j := range course.L2Size {
		one := run{from: j, to: j + 1, unmapped: true}
		for i, t := range at {
			if t != nil {
				one.there[i] = true
				one.first[i], one.last[i] = t.Blocks[j], t.Blocks[j]
				one.unmapped = one.unmapped && t.Blocks[j] == -1
			}
		}
		if n := len(runs); n > 0 && runs[n-1].follows(one) {
			runs[n-1].to, runs[n-1].last = j+1, one.last
			continue
		}
		runs = append(runs, one)
	}
	return split(runs)
}

// split draws entries one by one where a run is too short to be worth it.
func split(runs []run) []run {
	var all []run
	for _, r := range runs {
		if r.unmapped || r.to-r.from > 3 {
			all = append(all, r)
			continue
		}
		for j := r.from; j < r.to; j++ {
			one := r
			one.from, one.to = j, j+1
			for i := range one.first {
				if r.first[i] >= 0 {
					one.first[i] = r.first[i] + int32(j-r.from)
				}
				one.last[i] = one.first[i]
			}
			all = append(all, one)
		}
	}
	return all
}

func (a *run) column(find [moments]*compare.SequenceState) column {
	c := column{label: "[" + span(a.from, a.to) + "]"}
	for i := range find {
		switch {
		case !a.there[i]:
		case a.first[i] == a.last[i]:
			c.cells[i].value = fmt.Sprint(a.first[i])
		default:
			c.cells[i].value = fmt.Sprintf("%d–%d", a.first[i], a.last[i])
		}
	}
	return c
}
