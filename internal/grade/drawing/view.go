package drawing

import (
	"fmt"
	"slices"

	"llmmemory/internal/course"
	"llmmemory/internal/grade/compare"
)

// The three moments of a scene.
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
	changed      // by the call, as it had to be
	wrong        // not as it had to be
)

func (m mark) String() string { return [...]string{"", "*", "!"}[m] }

// A fill is what a physical block is in use for.
type fill uint8

const (
	unfilled fill = iota // no block
	free
	used
	shared
)

// A cell is one value at one moment: a block's count, an entry of a table, a
// record; or that of a run of them. The zero cell is not drawn.
type cell struct {
	value string
	want  string // if it is wrong
	mark  mark
	fill  fill
}

// A column is the same place at all moments.
type column struct {
	label string
	cells [moments]cell
}

func (c *column) mark() mark {
	return max(c.cells[before].mark, c.cells[expected].mark, c.cells[actual].mark)
}

// A strip is columns side by side.
type strip []column

// A table is an L2 table of a sequence, or several in a row whose entries follow
// each other.
type table struct {
	label   string
	cells   [moments]cell // the pointer to it: NULL or a table
	entries strip
}

// hidden reports whether there is nothing to draw of the table at a moment.
func (t *table) hidden(moment int) bool {
	at := t.cells[moment]
	return at.value == "" || at.value == null && at.mark == plain
}

func (t *table) mark() mark {
	worst := max(t.cells[expected].mark, t.cells[actual].mark)
	for i := range t.entries {
		worst = max(worst, t.entries[i].mark())
	}
	return worst
}

// A sequence is one that is there at some moment.
type sequence struct {
	id      int32
	present [moments]bool
	count   column // kv_count
	missing bool   // from the actual list
	strange bool   // in the actual list
	tables  []table
}

func (s *sequence) mark() mark {
	if s.missing || s.strange {
		return wrong
	}
	worst := s.count.mark()
	for i := range s.tables {
		worst = max(worst, s.tables[i].mark())
	}
	if worst == plain && s.present[expected] && !s.present[before] {
		return changed
	}
	return worst
}

// A view is what is drawn of a scene.
type view struct {
	titles    [moments]string
	states    [moments]*compare.State
	free      column
	total     column
	pool      strip
	list      strip // ids, in the order of the list
	sequences []sequence
	block     int      // whose records follow
	records   strip    // those that are not the same at all moments
	concerned []int32  // the sequences that the call names
	wrong     []string // in words
	unseen    []string // those of them that nothing drawn shows
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
	v.counters()
	v.pool = v.counts()
	v.list = v.order()
	v.sequences = v.seqs()
	v.records = v.written()
	v.say(d)
	return v
}

// both reports whether there is an engine at two moments.
func (v *view) both(a, b int) bool { return v.states[a] != nil && v.states[b] != nil }

// compare marks a column in both ways.
func (v *view) compare(c *column) {
	v.change(c)
	v.fault(c)
}

// change marks what the call had to change.
func (v *view) change(c *column) {
	is, was := &c.cells[expected], c.cells[before]
	if v.both(before, expected) && is.value != "" && is.value != was.value {
		is.mark = changed
	}
}

// fault marks what is not as it had to be.
func (v *view) fault(c *column) {
	is, want := &c.cells[actual], c.cells[expected]
	if v.both(expected, actual) && is.value != "" && is.value != want.value {
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

func (v *view) counters() {
	v.free = v.each(func(s *compare.State) string { return fmt.Sprint(s.Free) })
	v.total = v.each(func(s *compare.State) string { return fmt.Sprint(s.Total) })
}

// short is how many blocks are drawn one by one, whatever they hold.
const short = 12

// counts is the pool. In a long one, runs of blocks that are alike at all moments
// share a column.
func (v *view) counts() strip {
	total := 0
	for _, s := range v.states {
		if s != nil {
			total = max(total, len(s.RefCount))
		}
	}
	at := func(block int) (counts [moments]int32, there [moments]bool) {
		for i, s := range v.states {
			if s != nil && block < len(s.RefCount) {
				counts[i], there[i] = s.RefCount[block], true
			}
		}
		return counts, there
	}
	var pool strip
	for from := 0; from < total; {
		counts, there := at(from)
		to := from + 1
		for to < total {
			if c, t := at(to); c != counts || t != there {
				break
			}
			to++
		}
		if to-from < 3 || total <= short {
			to = from + 1
		}
		c := column{label: span(from, to)}
		for i := range counts {
			if there[i] {
				c.cells[i] = cell{value: fmt.Sprint(counts[i]), fill: fillOf(counts[i])}
			}
		}
		v.compare(&c)
		pool = append(pool, c)
		from = to
	}
	return pool
}

func fillOf(count int32) fill {
	switch count {
	case 0:
		return free
	case 1:
		return used
	default:
		return shared
	}
}

// span names the indices from, ..., to-1.
func span(from, to int) string {
	if to-from == 1 {
		return fmt.Sprint(from)
	}
	return fmt.Sprintf("%d–%d", from, to-1)
}

// order is the list, place by place.
func (v *view) order() strip {
	longest := 0
	for _, s := range v.states {
		if s != nil {
			longest = max(longest, len(s.Sequences))
		}
	}
	list := make(strip, longest)
	for place := range list {
		c := &list[place]
		c.label = fmt.Sprint(place + 1)
		for i, s := range v.states {
			if s != nil && place < len(s.Sequences) {
				c.cells[i].value = fmt.Sprint(s.Sequences[place].ID)
			}
		}
		v.compare(c)
	}
	return list
}

// name is what a sequence is called at a moment.
func (v *view) name(s *sequence, moment int) piece {
	m := plain
	switch {
	case s.strange && moment == actual:
		m = wrong
	case moment == expected && !s.present[before] && v.states[before] != nil:
		m = changed
	}
	return piece{fmt.Sprintf("%ssequence %d", m, s.id), m}
}

// drawable is how many sequences a State holds; of more, the rest is not known.
const drawable = 64

// closing is how the list ends.
func (v *view) closing(moment int) piece {
	switch s := v.states[moment]; {
	case s.Broken != "":
		return piece{" → ?", wrong}
	case len(s.Sequences) >= drawable:
		return text(" → …")
	default:
		return text(" → head")
	}
}

// seqs finds each sequence at all moments. Two with the same id, which only a
// broken list has, are told apart by their order.
func (v *view) seqs() []sequence {
	type key struct {
		id   int32
		nth  int
		find [moments]*compare.SequenceState
	}
	var keys []key
	for i, s := range v.states {
		if s == nil {
			continue
		}
		seen := map[int32]int{}
		for j := range s.Sequences {
			q := &s.Sequences[j]
			nth := seen[q.ID]
			seen[q.ID]++
			at := slices.IndexFunc(keys, func(k key) bool { return k.id == q.ID && k.nth == nth })
			if at < 0 {
				at = len(keys)
				keys = append(keys, key{id: q.ID, nth: nth})
			}
			keys[at].find[i] = q
		}
	}
	all := make([]sequence, len(keys))
	for n, k := range keys {
		s := &all[n]
		s.id = k.id
		for i, q := range k.find {
			if q != nil {
				s.present[i] = true
				s.count.cells[i].value = fmt.Sprint(q.KVCount)
			}
		}
		s.missing = v.both(expected, actual) && s.present[expected] && !s.present[actual] && v.states[actual].Broken == ""
		s.strange = v.both(expected, actual) && !s.present[expected] && s.present[actual]
		s.tables = tables(k.find)
		if s.present[before] && s.present[expected] {
			v.change(&s.count)
		}
		if s.present[expected] && s.present[actual] {
			v.fault(&s.count)
		}
		for i := range s.tables {
			v.compareTable(&s.tables[i], s.present)
		}
	}
	return all
}

// compareTable marks what differs in a table. Of one that was not there before,
// or is not expected, the entries are not told one by one.
func (v *view) compareTable(t *table, there [moments]bool) {
	was, want, is := t.cells[before].value, &t.cells[expected], &t.cells[actual]
	if there[before] && there[expected] && was != want.value {
		want.mark = changed
	}
	if there[expected] && there[actual] && want.value != is.value {
		is.mark, is.want = wrong, want.value
	}
	for i := range t.entries {
		if was == aTable && want.value == aTable {
			v.change(&t.entries[i])
		}
		if want.value == aTable && is.value == aTable {
			v.fault(&t.entries[i])
		}
	}
}

// What a table's pointer is.
const (
	null   = "NULL"
	aTable = "a table"
)

// tables are the L2 tables that a sequence has at any moment. Several in a row
// that are one run share a line.
func tables(find [moments]*compare.SequenceState) []table {
	var all []table
	var lines []run // of all, where a line is one run
	for slot := range course.L1Size {
		var at [moments]*compare.Table
		found := false
		for i, q := range find {
			if q == nil {
				continue
			}
			if j := slices.IndexFunc(q.Tables, func(t compare.Table) bool { return t.Slot == slot }); j >= 0 {
				at[i], found = &q.Tables[j], true
			}
		}
		if !found {
			continue
		}
		runs := runsOf(at)
		if len(runs) == 1 && len(lines) > 0 {
			if last := &lines[len(lines)-1]; last.full && last.slot+last.slots == slot && last.follows(runs[0]) {
				last.slots++
				for i := range last.last {
					last.last[i] = runs[0].last[i]
				}
				t := &all[len(all)-1]
				t.label = fmt.Sprintf("block_table[%d–%d]", last.slot, slot)
				if !last.unmapped {
					t.entries = strip{last.column(find)}
					t.entries[0].label = "all"
				}
				continue
			}
		}
		t := table{label: fmt.Sprintf("block_table[%d]", slot)}
		for i, q := range find {
			if q != nil {
				t.cells[i].value = null
				if at[i] != nil {
					t.cells[i].value = aTable
				}
			}
		}
		for _, r := range runs {
			if !r.unmapped {
				t.entries = append(t.entries, r.column(find))
			}
		}
		line := run{}
		if len(runs) == 1 {
			line = runs[0]
			line.full, line.slot, line.slots = true, slot, 1
		}
		all, lines = append(all, t), append(lines, line)
	}
	return all
}

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

// written is the records of a block that are not the same at all moments.
func (v *view) written() strip {
	var all strip
	for n := range course.KVPerBlock {
		c := column{label: fmt.Sprint(n)}
		alike := true
		for i, s := range v.states {
			if s == nil || n >= len(s.Records) {
				continue
			}
			c.cells[i].value = record(s.Records[n])
			alike = alike && (i == before || c.cells[i-1].value == "" || c.cells[i].value == c.cells[i-1].value)
		}
		if !alike {
			v.compare(&c)
			all = append(all, c)
		}
	}
	return all
}

// record is a record as a student knows it: one that was appended is a small
// number, the rest is what the pool was filled with.
func record(n int32) string {
	if -1_000_000 < n && n < 1_000_000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("0x%08x", uint32(n))
}
