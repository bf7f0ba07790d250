package drawing

import (
	"fmt"
	"slices"

	"llmmemory/internal/course"
	"llmmemory/internal/grade/compare"
)

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
