package report

import (
	"fmt"
	"slices"

	"llmmemory/internal/homework/course"
	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/grade/judging/compare"
)

func (v *view) seqs() []sequence {
	var all []sequence
	for i, s := range v.states {
		if s == nil {
			continue
		}
		seen := map[int32]int{}
		for j := range s.Sequences {
			q := &s.Sequences[j]
			nth := seen[q.ID]
			seen[q.ID]++
			index := slices.IndexFunc(all, func(o sequence) bool { return o.id == q.ID && o.nth == nth })
			if index < 0 {
				index = len(all)
				all = append(all, sequence{id: q.ID, nth: nth})
			}
			all[index].found[i] = q
			all[index].count.cells[i].value = compare.Value(q.KVCount)
		}
	}
	for n := range all {
		s := &all[n]
		s.missing = v.bothExist(expected, actual) && s.existsAt(expected) && !s.existsAt(actual) && v.states[actual].Broken == ""
		s.strange = v.bothExist(expected, actual) && !s.existsAt(expected) && s.existsAt(actual)
		s.tables = tables(s.found)
		if s.existsAt(before) && s.existsAt(expected) {
			v.change(&s.count)
		}
		if s.existsAt(expected) && s.existsAt(actual) {
			v.fault(&s.count)
		}
		for i := range s.tables {
			v.compareTable(&s.tables[i], s)
		}
	}
	return all
}

// compareTable marks the differences in a table. It does not mark the entries if the whole table is new or unexpected.
func (v *view) compareTable(t *table, owner *sequence) {
	was, want, got := t.cells[before].value, &t.cells[expected], &t.cells[actual]
	if owner.existsAt(before) && owner.existsAt(expected) && was != want.value {
		want.mark = changed
	}
	if owner.existsAt(expected) && owner.existsAt(actual) && want.value != got.value {
		got.mark, got.want = wrong, want.value
	}
	for i := range t.entries {
		if was == aTable && want.value == aTable {
			v.change(&t.entries[i])
		}
		if want.value == aTable && got.value == aTable {
			v.fault(&t.entries[i])
		}
	}
}

func (v *view) written() strip {
	var all strip
	for n := range course.KVPerBlock {
		c := v.each(func(s *compare.State) string {
			if n < len(s.Records) {
				return record(s.Records[n])
			}
			return ""
		})
		if c.mark() != plain {
			c.label = fmt.Sprint(n)
			all = append(all, c)
		}
	}
	return all
}

// record formats a record of a block. A number with at most six digits is written in decimal. A larger number may
// consist of the pool's fill bytes, so it is written in hexadecimal.
func record(n int32) string {
	if -1_000_000 < n && n < 1_000_000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("0x%08x", uint32(n))
}

const (
	null   = "NULL"
	aTable = "a table"
)

// tables returns the L2 tables that a sequence has at any of the moments. It combines consecutive L2 tables into one
// table of the result if all their entries together are one run.
func tables(find [moments]*oracle.SequenceState) []table {
	var all []table
	var lines []run // the run of each line, if it is one run
	for slot := range course.L1Size {
		var slotTables [moments]*course.L2Table
		found := false
		for i, q := range find {
			if q != nil && q.Tables[slot] != nil {
				slotTables[i], found = q.Tables[slot], true
			}
		}
		if !found {
			continue
		}
		runs := runsOf(slotTables)
		if len(runs) == 1 && len(lines) > 0 {
			if last := &lines[len(lines)-1]; last.full && last.slot+last.slots == slot && last.follows(runs[0]) {
				last.slots++
				for i := range last.last {
					last.last[i] = runs[0].last[i]
				}
				t := &all[len(all)-1]
				t.label = fmt.Sprintf("block_table[%d–%d]", last.slot, slot)
				if !last.unmapped {
					t.entries = strip{last.column()}
					t.entries[0].label = "all"
				}
				continue
			}
		}
		t := table{label: fmt.Sprintf("block_table[%d]", slot)}
		for i, q := range find {
			if q != nil {
				t.cells[i].value = null
				if slotTables[i] != nil {
					t.cells[i].value = aTable
				}
			}
		}
		for _, r := range runs {
			if !r.unmapped {
				t.entries = append(t.entries, r.column())
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

// A run is a range of consecutive table entries. At each moment, the entries are either all -1 or consecutive block
// ids.
type run struct {
	start, end  int // the run has the entries [start, end)
	first, last [moments]int32
	present     [moments]bool
	unmapped    bool // at all moments
	full        bool // it is whole tables: how many, from which slot
	slot, slots int
}

func (a *run) follows(r run) bool {
	if a.present != r.present || a.unmapped != r.unmapped {
		return false
	}
	for i := range a.last {
		switch {
		case !a.present[i]:
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

func runsOf(tables [moments]*course.L2Table) []run {
	var runs []run
	for j := range course.L2Size {
		one := run{start: j, end: j + 1, unmapped: true}
		for i, t := range tables {
			if t != nil {
				one.present[i] = true
				one.first[i], one.last[i] = t[j], t[j]
				one.unmapped = one.unmapped && t[j] == -1
			}
		}
		if n := len(runs); n > 0 && runs[n-1].follows(one) {
			runs[n-1].end, runs[n-1].last = j+1, one.last
			continue
		}
		runs = append(runs, one)
	}
	return split(runs)
}

// split splits short runs into single entries.
func split(runs []run) []run {
	var all []run
	for _, r := range runs {
		if r.unmapped || r.end-r.start > 3 {
			all = append(all, r)
			continue
		}
		for j := r.start; j < r.end; j++ {
			one := r
			one.start, one.end = j, j+1
			for i := range one.first {
				if r.first[i] >= 0 {
					one.first[i] = r.first[i] + int32(j-r.start)
				}
				one.last[i] = one.first[i]
			}
			all = append(all, one)
		}
	}
	return all
}

func (a *run) column() column {
	c := column{label: "[" + span(a.start, a.end) + "]"}
	for i := range moments {
		switch {
		case !a.present[i]:
		case a.first[i] == a.last[i]:
			c.cells[i].value = compare.Value(a.first[i])
		default:
			c.cells[i].value = fmt.Sprintf("%d–%d", a.first[i], a.last[i])
		}
	}
	return c
}
