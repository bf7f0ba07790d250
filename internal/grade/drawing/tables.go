package drawing

import (
	"fmt"
	"slices"

	"llmmemory/internal/course"
	"llmmemory/internal/grade/compare"
)

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
