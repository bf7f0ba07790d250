package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/homework/grade/judging/compare"
)

// say describes the wrong values, and the values that the call had to change, in words.
func (v *view) say(d *compare.Difference) {
	if d != nil && slices.Contains([]compare.Channel{compare.Death, compare.Returned, compare.Heap}, d.Channel) {
		v.mistakes = append(v.mistakes, d.Headline())
	}
	v.sayColumn("free_local_blocks", &v.free)
	v.sayColumn("total_local_blocks", &v.total)
	for i := range v.pool {
		v.sayColumn("ref_count["+v.pool[i].label+"]", &v.pool[i])
	}
	for i := range v.list {
		v.sayWrong("place "+v.list[i].label+" of the list", &v.list[i])
	}
	for i := range v.sequences {
		v.saySequence(&v.sequences[i])
	}
	for i := range v.records {
		v.sayColumn(fmt.Sprintf("record %s of block %d", v.records[i].label, v.block), &v.records[i])
	}
	if len(v.mistakes) == 0 && d != nil { // nothing that is drawn is wrong
		v.mistakes = append(v.mistakes, d.Headline())
	}
	if s := v.states[actual]; s != nil && s.Broken != "" {
		v.mistakes = append(v.mistakes, s.Broken+" cannot be followed: what comes after it is not drawn")
	}
}

func (v *view) saySequence(s *sequence) {
	name := compare.SequenceName(s.id)
	switch {
	case s.missing:
		v.mistakes = append(v.mistakes, name+" is not in the list")
	case s.strange:
		v.mistakes = append(v.mistakes, name+" must not be in the list")
	}
	if v.bothExist(before, expected) && s.existsAt(before) != s.existsAt(expected) {
		v.changes = append(v.changes, name+map[bool]string{true: " is new", false: " is gone"}[s.existsAt(expected)])
	}
	v.sayColumn(name+": kv_count", &s.count)
	for i := range s.tables {
		t := &s.tables[i]
		v.sayColumn(name+": "+t.label, &column{cells: t.cells})
		for j := range t.entries {
			v.sayColumn(name+": "+t.label+strings.TrimPrefix(t.entries[j].label, "all"), &t.entries[j])
		}
	}
}

func (v *view) sayColumn(name string, c *column) {
	if is := c.cells[expected]; is.mark == changed {
		v.changes = append(v.changes, name+" is "+is.value)
	}
	v.sayWrong(name, c)
}

func (v *view) sayWrong(name string, c *column) {
	if is := c.cells[actual]; is.mark == wrong {
		v.mistakes = append(v.mistakes, fmt.Sprintf("%s is %s, but has to be %s", name, is.value, cmp.Or(is.want, "none")))
	}
}

// absent says why nothing is drawn at a moment. It returns "" if there is an engine.
func (v *view) absent(moment int) string {
	switch {
	case v.states[moment] != nil:
		return ""
	case moment == before:
		return "no engine yet"
	case moment == actual && v.states[expected] != nil:
		return "no engine that could be read"
	default:
		return "no engine"
	}
}

func moreLines(n int) string {
	if n == 1 {
		return "1 more line, of a table or a sequence"
	}
	return fmt.Sprintf("%d more lines, of tables and sequences", n)
}
