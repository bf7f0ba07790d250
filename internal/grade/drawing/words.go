package drawing

import (
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/grade/compare"
)

// say puts what is wrong into words.
func (v *view) say(d *compare.Difference) {
	if d != nil && slices.Contains([]compare.Channel{compare.Death, compare.Returned, compare.Heap}, d.Channel) {
		v.cannotBeSeen(d)
	}
	v.sayChanges()
	v.faulty("free_local_blocks", &v.free)
	v.faulty("total_local_blocks", &v.total)
	for i := range v.pool {
		v.faulty("ref_count["+v.pool[i].label+"]", &v.pool[i])
	}
	for i := range v.list {
		v.faulty("place "+v.list[i].label+" of the list", &v.list[i])
	}
	for i := range v.sequences {
		v.saySequence(&v.sequences[i])
	}
	for i := range v.records {
		v.faulty(fmt.Sprintf("record %s of block %d", v.records[i].label, v.block), &v.records[i])
	}
	if len(v.wrong) == 0 && d != nil { // it is nothing that is drawn
		v.cannotBeSeen(d)
	}
	if s := v.states[actual]; s != nil && s.Broken != "" {
		v.wrong = append(v.wrong, s.Broken+" cannot be followed: what comes after it is not drawn")
		v.unseen = append(v.unseen, v.wrong[len(v.wrong)-1])
	}
}

// cannotBeSeen tells a difference that is in no picture.
func (v *view) cannotBeSeen(d *compare.Difference) {
	v.wrong = append(v.wrong, d.Headline())
	v.unseen = append(v.unseen, v.wrong[len(v.wrong)-1])
}

func (v *view) saySequence(s *sequence) {
	name := fmt.Sprintf("sequence %d", s.id)
	switch {
	case s.missing:
		v.wrong = append(v.wrong, name+" is not in the list")
	case s.strange:
		v.wrong = append(v.wrong, name+" must not be in the list")
	}
	v.faulty(name+": kv_count", &s.count)
	for i := range s.tables {
		t := &s.tables[i]
		v.faulty(name+": "+t.label, &column{cells: t.cells})
		for j := range t.entries {
			v.faulty(name+": "+t.label+strings.TrimPrefix(t.entries[j].label, "all"), &t.entries[j])
		}
	}
}

// sayChanges puts what the call had to change into words.
func (v *view) sayChanges() {
	say := func(what string, c *column) {
		if is := c.cells[expected]; is.mark == changed {
			v.changes = append(v.changes, what+" is "+is.value)
		}
	}
	say("free_local_blocks", &v.free)
	for i := range v.pool {
		say("ref_count["+v.pool[i].label+"]", &v.pool[i])
	}
	for i := range v.sequences {
		s := &v.sequences[i]
		name := fmt.Sprintf("sequence %d", s.id)
		switch {
		case v.states[before] == nil || v.states[expected] == nil:
			continue
		case s.present[before] && !s.present[expected]:
			v.changes = append(v.changes, name+" is gone")
			continue
		case !s.present[before] && s.present[expected]:
			v.changes = append(v.changes, name+" is new")
			continue
		}
		say(name+": kv_count", &s.count)
		for j := range s.tables {
			t := &s.tables[j]
			say(name+": "+t.label, &column{cells: t.cells})
			for k := range t.entries {
				say(name+": "+t.label+strings.TrimPrefix(t.entries[k].label, "all"), &t.entries[k])
			}
		}
	}
	for i := range v.records {
		say(fmt.Sprintf("record %s of block %d", v.records[i].label, v.block), &v.records[i])
	}
}

func (v *view) faulty(what string, c *column) {
	if a := c.cells[actual]; a.mark == wrong {
		v.tell(what, a.value, a.want)
	}
}

func (v *view) tell(what, is, want string) {
	if want == "" {
		want = "none"
	}
	v.wrong = append(v.wrong, fmt.Sprintf("%s is %s, but has to be %s", what, is, want))
}

// absent says why there is nothing to draw at a moment.
func (v *view) absent(moment int) string {
	switch {
	case v.states[moment] != nil:
		return ""
	case moment == before:
		return "no engine yet"
	case moment == expected:
		return "no engine"
	case v.states[expected] != nil:
		return "no engine that could be read"
	default:
		return "no engine"
	}
}

// more says what is left out.
func more(lines int) string {
	if lines == 1 {
		return "1 more line, of a table or a sequence"
	}
	return fmt.Sprintf("%d more lines, of tables and sequences", lines)
}
