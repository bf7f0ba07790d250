package automaton

import (
	"encoding/binary"
	"unicode/utf8"

	"llmmemory/internal/serving/meter"
)

// Builder makes a DFA from a nondeterministic automaton. The methods that add states or transitions charge a meter.
// After the meter has refused, they add none.
type Builder struct {
	meter  *meter.Meter
	last   []int32 // the last arc of each state, or none
	arcs   []arc
	begins [][2]int32 // source, target
	ends   [][2]int32
	tags   []int32
	sets   []Set

	ranges map[Range]int32  // the sets that are one range
	shared map[*Range]int32 // the other sets, by their first range: parts of an expression share sets
	equal  map[string]int32 // the same, by their contents
}

// arc is a transition. The arcs of a state are a linked list.
type arc struct {
	before int32 // the next arc of the list, or none
	set    int32 // index in Builder.sets, or none for a transition that reads nothing
	target int32
}

const none = -1

// NewBuilder returns an empty builder.
func NewBuilder(m *meter.Meter) *Builder {
	return &Builder{meter: m, ranges: map[Range]int32{}, shared: map[*Range]int32{}, equal: map[string]int32{}}
}

const (
	stateBytes = 16 // about what a state of a Builder takes
	arcBytes   = 24
)

// State adds a state. The first one is the start.
func (b *Builder) State() int32 {
	if b.meter.Keep(stateBytes) != nil {
		return 0
	}
	b.last = append(b.last, none)
	b.tags = append(b.tags, None)
	return int32(len(b.last) - 1)
}

func (b *Builder) arc(source, set, target int32) {
	if b.meter.Spend(1) != nil || b.meter.Keep(arcBytes) != nil {
		return
	}
	b.arcs = append(b.arcs, arc{b.last[source], set, target})
	b.last[source] = int32(len(b.arcs) - 1)
}

// Edge adds a transition from one state to another for every character of a set.
func (b *Builder) Edge(source int32, set Set, target int32) {
	switch {
	case len(set) == 1:
		b.arc(source, b.rangeID(set[0]), target)
	case len(set) > 1:
		b.arc(source, b.setID(set), target)
	}
}

// Literal adds transitions from source to target that read a text, which must be UTF-8.
func (b *Builder) Literal(source int32, text string, target int32) {
	if text == "" {
		b.Empty(source, target)
	}
	for i, r := range text {
		if b.meter.Err() != nil {
			return
		}
		next := target
		if i+utf8.RuneLen(r) < len(text) {
			next = b.State()
		}
		b.arc(source, b.rangeID(Range{r, r}), next)
		source = next
	}
}

// Empty adds a transition without a character.
func (b *Builder) Empty(source, target int32) { b.arc(source, none, target) }

// Begin adds a transition without a character that is possible only before the first character of the
// text.
func (b *Builder) Begin(source, target int32) {
	if b.meter.Spend(1) == nil {
		b.begins = append(b.begins, [2]int32{source, target})
	}
}

// End adds a transition that reads no character. It can be taken only at the end of the text.
func (b *Builder) End(source, target int32) {
	if b.meter.Spend(1) == nil {
		b.ends = append(b.ends, [2]int32{source, target})
	}
}

// Repeat adds transitions from one state to another for minimum to maximum occurrences of a part. If maximum
// is below 0, there is no upper limit. The function part adds one occurrence between two states.
func (b *Builder) Repeat(source, target int32, minimum, maximum int, part func(source, target int32) error) error {
	copies := maximum // of the part, one after another
	if maximum < 0 {
		copies = max(minimum, 1)
	}
	for i := range copies {
		if i >= minimum {
			b.Empty(source, target)
		}
		next := b.State()
		if maximum < 0 && i == copies-1 { // the last one may be repeated
			loop := b.State()
			b.Empty(source, loop)
			b.Empty(next, loop)
			source = loop
		}
		if err := part(source, next); err != nil {
			return err
		}
		if err := b.meter.Err(); err != nil {
			return err
		}
		source = next
	}
	b.Empty(source, target)
	return b.meter.Err()
}

// Embed adds the states and transitions of d. It also adds transitions that read no character: one from source to the
// start of d, and one from each accepting state of d to target. If d is empty, Embed adds nothing.
func (b *Builder) Embed(d *DFA, source, target int32) {
	if d.Empty() || b.meter.Spend(len(d.starts)) != nil {
		return
	}
	ranges := make([][]Range, d.width)
	d.Segments(0, MaxRune, func(lo, hi rune, class int32) bool {
		ranges[class] = append(ranges[class], Range{lo, hi})
		return true
	})
	sets := make([]Set, d.width)
	for class := range ranges {
		sets[class] = NewSet(ranges[class]...)
	}
	first := int32(len(b.last))
	for range d.tags {
		b.State()
	}
	b.Empty(source, first)
	for state, tag := range d.tags {
		if b.meter.Spend(d.width) != nil {
			return
		}
		for class, set := range sets {
			if next := d.Next(int32(state), int32(class)); next != None {
				b.Edge(first+int32(state), set, first+next)
			}
		}
		if tag != None {
			b.Empty(first+int32(state), target)
		}
	}
}

// Accept makes a state accept with the given tag, which is at least 0.
func (b *Builder) Accept(state, tag int32) {
	if b.meter.Err() == nil {
		b.tags[state] = tag
	}
}

func (b *Builder) rangeID(r Range) int32 {
	id, ok := b.ranges[r]
	if !ok {
		id = b.newSet(Set{r})
		b.ranges[r] = id
	}
	return id
}

func (b *Builder) setID(set Set) int32 {
	if id, ok := b.shared[&set[0]]; ok {
		return id
	}
	if b.meter.Spend(len(set)) != nil || b.meter.Keep(8*len(set)) != nil {
		return 0
	}
	key := make([]byte, 0, 8*len(set))
	for _, r := range set {
		key = binary.LittleEndian.AppendUint32(key, uint32(r.Lo))
		key = binary.LittleEndian.AppendUint32(key, uint32(r.Hi))
	}
	id, ok := b.equal[string(key)]
	if !ok {
		id = b.newSet(set)
		b.equal[string(key)] = id
	}
	b.shared[&set[0]] = id
	return id
}

func (b *Builder) newSet(set Set) int32 {
	b.sets = append(b.sets, set)
	return int32(len(b.sets) - 1)
}
