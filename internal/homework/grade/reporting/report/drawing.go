package report

import (
	"fmt"
	"math"

	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/grade/judging/compare"
)

const (
	before = iota
	expected
	actual
	moments
)

// A mark says what the call did to a value.
type mark uint8

const (
	plain   mark = iota
	changed      // changed by the call, as required
	wrong        // not as expected
)

// A cell shows one value at one of the three moments (before, expected, actual). The value is a count, a table entry,
// a record, or a run of equal or consecutive numbers. The zero cell is not drawn.
type cell struct {
	value string
	want  string // expected value, if it is wrong
	mark  mark
}

// A column is the same place at all moments.
type column struct {
	label string
	cells [moments]cell
}

func (c *column) mark() mark {
	return max(c.cells[before].mark, c.cells[expected].mark, c.cells[actual].mark)
}

// A strip is a row of columns.
type strip []column

// A table is one L2 table of a sequence, or several consecutive tables that are drawn as one because their entries
// form one run.
type table struct {
	label   string
	cells   [moments]cell // the pointer to it: NULL or a table
	entries strip
}

func (t *table) hidden(moment int) bool {
	cell := t.cells[moment]
	return cell.value == "" || cell.value == null && cell.mark == plain
}

func (t *table) mark() mark {
	worst := max(t.cells[expected].mark, t.cells[actual].mark)
	for i := range t.entries {
		worst = max(worst, t.entries[i].mark())
	}
	return worst
}

// A sequence is a sequence that the engine has before the call, or that it should have or has after the call. If a
// broken list has several sequences with one id, nth numbers them in list order.
type sequence struct {
	id      int32
	nth     int
	found   [moments]*oracle.SequenceState // nil where it is not in the list
	count   column                         // kv_count
	missing bool                           // missing from the actual list
	strange bool                           // in the actual list although it must not be
	tables  []table
}

func (s *sequence) existsAt(moment int) bool { return s.found[moment] != nil }

func (s *sequence) mark() mark {
	if s.missing || s.strange {
		return wrong
	}
	worst := s.count.mark()
	for i := range s.tables {
		worst = max(worst, s.tables[i].mark())
	}
	if worst == plain && s.existsAt(expected) && !s.existsAt(before) {
		return changed
	}
	return worst
}

// A view is the part of a scene that is drawn.
type view struct {
	titles    [moments]string
	states    [moments]*compare.State
	free      column
	total     column
	pool      strip
	list      strip // ids in list order
	sequences []sequence
	block     int      // the block of the records
	records   strip    // the records that change
	concerned []int32  // the first id that the call names
	changes   []string // what the call had to change, in words
	mistakes  []string // what is wrong, in words
}

// newView returns nil if there is nothing to draw.
func newView(s *compare.Scene, d *compare.Difference) *view {
	if s == nil || s.Before == nil && s.Expected == nil && s.Actual == nil {
		return nil
	}
	v := &view{states: [moments]*compare.State{s.Before, s.Expected, s.Actual}, block: s.Block}
	call := "the call"
	if d != nil {
		call = d.Op.Kind.Function()
		v.concerned = []int32{d.Op.A}
	}
	v.titles = [moments]string{"before " + call, "expected after " + call, "actual after " + call}
	v.free = v.each(func(s *compare.State) string { return compare.Value(s.Free) })
	v.total = v.each(func(s *compare.State) string { return compare.Value(s.Total) })
	v.pool = v.counts()
	v.list = v.order()
	v.sequences = v.seqs()
	v.records = v.written()
	v.say(d)
	return v
}

func (v *view) bothExist(a, b int) bool { return v.states[a] != nil && v.states[b] != nil }

// compare marks a column as changed, wrong or both.
func (v *view) compare(c *column) {
	v.change(c)
	v.fault(c)
}

// change marks the values that the call had to change.
func (v *view) change(c *column) {
	is, was := &c.cells[expected], c.cells[before]
	if v.bothExist(before, expected) && is.value != "" && is.value != was.value {
		is.mark = changed
	}
}

func (v *view) fault(c *column) {
	is, want := &c.cells[actual], c.cells[expected]
	if v.bothExist(expected, actual) && is.value != "" && is.value != want.value {
		is.mark, is.want = wrong, want.value
	}
}

func (v *view) each(value func(*compare.State) string) column {
	var c column
	for i, s := range v.states {
		if s != nil {
			c.cells[i].value = value(s)
		}
	}
	v.compare(&c)
	return c
}

const short = 12 // a pool with at most this many blocks has a column for each block

// counts returns the reference counts of the pool as a strip, with one column for each block. In a long pool, three
// or more consecutive blocks share a column if their counts are equal at each moment.
func (v *view) counts() strip {
	total := 0
	for _, s := range v.states {
		if s != nil {
			total = max(total, len(s.RefCount))
		}
	}
	const none = math.MaxInt64 // there is no such block
	countsOf := func(block int) (counts [moments]int64) {
		for i, s := range v.states {
			counts[i] = none
			if s != nil && block < len(s.RefCount) {
				counts[i] = int64(s.RefCount[block])
			}
		}
		return counts
	}
	var pool strip
	for start, end := 0, 0; start < total; start = end {
		counts := countsOf(start)
		for end = start + 1; end < total && countsOf(end) == counts; {
			end++
		}
		if end-start < 3 || total <= short {
			end = start + 1
		}
		c := column{label: span(start, end)}
		for i, count := range counts {
			if count != none {
				c.cells[i].value = compare.Value(int32(count))
			}
		}
		v.compare(&c)
		pool = append(pool, c)
	}
	return pool
}

func span(start, end int) string {
	if end-start == 1 {
		return fmt.Sprint(start)
	}
	return fmt.Sprintf("%d–%d", start, end-1)
}

// order returns the list, place by place.
func (v *view) order() strip {
	longest := 0
	for _, s := range v.states {
		if s != nil {
			longest = max(longest, len(s.Sequences))
		}
	}
	list := make(strip, longest)
	for place := range list {
		list[place] = v.each(func(s *compare.State) string {
			if place < len(s.Sequences) {
				return compare.Value(s.Sequences[place].ID)
			}
			return ""
		})
		list[place].label = fmt.Sprint(place + 1)
	}
	return list
}

func (v *view) name(s *sequence, moment int) piece {
	m := plain
	switch {
	case s.strange && moment == actual:
		m = wrong
	case moment == expected && !s.existsAt(before) && v.states[before] != nil:
		m = changed
	}
	return piece{compare.SequenceName(s.id), m}
}

func (v *view) closing(moment int) piece {
	switch s := v.states[moment]; {
	case s.Broken != "":
		return piece{" → ?", wrong}
	case len(s.Sequences) >= compare.MaxSequences:
		return text(" → …")
	default:
		return text(" → head")
	}
}
