package automaton

import (
	"encoding/binary"
	"slices"

	"llmmemory/internal/serving/meter"
)

// Builder makes a DFA from a nondeterministic automaton. The zero Builder is empty.
type Builder struct {
	edges   [][]edge
	empties [][]int32
	begins  [][2]int32 // source, target
	ends    [][2]int32
	tags    []int32
	sets    []Set
	ids     map[string]int32
}

type edge struct{ set, target int32 }

// State adds a state. The first one is the start.
func (b *Builder) State() int32 {
	b.edges = append(b.edges, nil)
	b.empties = append(b.empties, nil)
	b.tags = append(b.tags, None)
	return int32(len(b.edges) - 1)
}

// Edge adds a transition from one state to another for every character of a set.
func (b *Builder) Edge(source int32, set Set, target int32) {
	if len(set) > 0 {
		b.edges[source] = append(b.edges[source], edge{b.setID(set), target})
	}
}

// Empty adds a transition without a character.
func (b *Builder) Empty(source, target int32) { b.empties[source] = append(b.empties[source], target) }

// Begin adds a transition without a character that is possible only before the first character of the
// text.
func (b *Builder) Begin(source, target int32) { b.begins = append(b.begins, [2]int32{source, target}) }

// End adds a transition that reads no character. It can be taken only at the end of the text.
func (b *Builder) End(source, target int32) { b.ends = append(b.ends, [2]int32{source, target}) }

// Repeat adds transitions from one state to another for minimum to maximum occurrences of a part. If maximum
// is below 0, there is no upper limit. The function part adds one occurrence between two states.
func (b *Builder) Repeat(source, target int32, minimum, maximum int, part func(source, target int32) error) error {
	for range minimum {
		next := b.State()
		if err := part(source, next); err != nil {
			return err
		}
		source = next
	}
	if maximum < 0 {
		loop, end := b.State(), b.State()
		b.Empty(source, loop)
		b.Empty(loop, target)
		b.Empty(end, loop)
		return part(loop, end)
	}
	for range maximum - minimum {
		b.Empty(source, target)
		next := b.State()
		if err := part(source, next); err != nil {
			return err
		}
		source = next
	}
	b.Empty(source, target)
	return nil
}

// Embed adds the states and transitions of d. It also adds transitions that read no character: one from source to the
// start of d, and one from each accepting state of d to target. If d is empty, Embed adds nothing.
func (b *Builder) Embed(d *DFA, source, target int32) {
	if d.Empty() {
		return
	}
	sets := make([][]Range, d.width)
	d.Segments(0, MaxRune, func(lo, hi rune, class int32) bool {
		sets[class] = append(sets[class], Range{lo, hi})
		return true
	})
	first := int32(len(b.edges))
	for range d.tags {
		b.State()
	}
	b.Empty(source, first)
	classes := make([]Set, d.width)
	for class, ranges := range sets {
		classes[class] = NewSet(ranges...)
	}
	for state, tag := range d.tags {
		for class, set := range classes {
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
func (b *Builder) Accept(state, tag int32) { b.tags[state] = tag }

func (b *Builder) setID(set Set) int32 {
	key := make([]byte, 0, 8*len(set))
	for _, r := range set {
		key = binary.LittleEndian.AppendUint32(key, uint32(r.Lo))
		key = binary.LittleEndian.AppendUint32(key, uint32(r.Hi))
	}
	if id, ok := b.ids[string(key)]; ok {
		return id
	}
	if b.ids == nil {
		b.ids = map[string]int32{}
	}
	id := int32(len(b.sets))
	b.ids[string(key)] = id
	b.sets = append(b.sets, set)
	return id
}

// Build returns the deterministic automaton. If a text leads to accepting states with several tags, it
// gets the smallest tag.
func (b *Builder) Build(budget *meter.Meter) (*DFA, error) {
	d := &DFA{}
	members, err := b.alphabet(d, budget)
	if err != nil {
		return nil, err
	}
	if len(b.edges) == 0 {
		return d, nil
	}
	s := subsets{b: b, d: d, members: members, ids: map[string]int32{}, mark: make([]int32, len(b.edges)), budget: budget}
	if err := s.start(); err != nil {
		return nil, err
	}
	for state := 0; state < len(s.states); state++ {
		if err := s.expand(int32(state)); err != nil {
			return nil, err
		}
	}
	d.trim()
	return d, nil
}

// alphabet sets the character classes of d. For each set of b, it returns the classes whose characters are in
// the set.
func (b *Builder) alphabet(d *DFA, budget *meter.Meter) ([][]int32, error) {
	type event struct {
		start rune
		set   int32
	}
	var events []event
	for id, set := range b.sets {
		for _, r := range set {
			events = append(events, event{r.Lo, int32(id)}, event{r.Hi + 1, int32(id)})
		}
	}
	if err := budget.Spend(len(events)); err != nil {
		return nil, err
	}
	slices.SortFunc(events, func(a, b event) int { return int(a.start) - int(b.start) })
	current := make([]byte, (len(b.sets)+7)/8)
	ids := map[string]int32{}
	members := make([][]int32, len(b.sets))
	add := func(start rune) {
		class, ok := ids[string(current)]
		if !ok {
			class = int32(len(ids))
			ids[string(current)] = class
			for set := range b.sets {
				if current[set/8]>>(set%8)&1 == 1 {
					members[set] = append(members[set], class)
				}
			}
		}
		d.starts = append(d.starts, start)
		d.class = append(d.class, class)
	}
	if len(events) == 0 || events[0].start > 0 {
		add(0)
	}
	for i := 0; i < len(events); {
		start := events[i].start
		for ; i < len(events) && events[i].start == start; i++ {
			current[events[i].set/8] ^= 1 << (events[i].set % 8)
		}
		if start <= MaxRune {
			add(start)
		}
	}
	d.width = len(ids)
	return members, budget.Spend(len(d.starts) * (1 + len(current)/8))
}

// subsets builds a DFA by the subset construction: each reachable set of states of b becomes a state
// of d.
type subsets struct {
	b       *Builder
	d       *DFA
	members [][]int32 // the classes of each set of b
	ids     map[string]int32
	tags    []int32   // of the states of b, if the text ends there
	states  [][]int32 // the states of b in each state of d
	mark    []int32   // the last round of closeOver that reached each state of b
	round   int32
	current []int32 // the result of closeOver
	key     []byte
	budget  *meter.Meter
}

// start makes the first state of d, which is the state before the first character of a text. The transitions that
// Builder.Begin added can be taken only there. start also sets s.tags: for each state of b, the tag of a text that ends
// in this state. At its end, a text can also take the transitions that Builder.End added.
func (s *subsets) start() error {
	b := s.b
	s.tags = s.endTags(b.ends)
	if len(b.begins) == 0 {
		s.closeOver([]int32{0})
		s.intern()
		return nil
	}
	s.tags = s.endTags(slices.Concat(b.ends, b.begins))
	plain := b.empties
	b.empties = slices.Clone(plain)
	for _, e := range b.begins {
		b.empties[e[0]] = append(slices.Clone(b.empties[e[0]]), e[1])
	}
	s.closeOver([]int32{0})
	b.empties = plain
	s.intern()
	s.tags = s.endTags(b.ends)
	return s.budget.Spend(len(b.begins) + len(b.edges))
}

// endTags returns the tag that each state of b has if the text ends there. This is the smallest tag among those of the
// state itself and of all states that can be reached from it without reading a character. The transitions in extra
// count as transitions that read no character. If extra is empty, endTags returns only each state's own tag.
func (s *subsets) endTags(extra [][2]int32) []int32 {
	tags := slices.Clone(s.b.tags)
	if len(extra) == 0 {
		return tags
	}
	for changed := true; changed; {
		changed = false
		lower := func(source, target int32) {
			if t := tags[target]; t != None && (tags[source] == None || t < tags[source]) {
				tags[source], changed = t, true
			}
		}
		for source, targets := range s.b.empties {
			for _, target := range targets {
				lower(int32(source), target)
			}
		}
		for _, e := range extra {
			lower(e[0], e[1])
		}
	}
	return tags
}

// closeOver sets current to the states that can be reached from the given states without a character,
// in ascending order.
func (s *subsets) closeOver(states []int32) {
	s.round++
	s.current = s.current[:0]
	for _, state := range states {
		if s.mark[state] != s.round {
			s.mark[state] = s.round
			s.current = append(s.current, state)
		}
	}
	for i := 0; i < len(s.current); i++ {
		for _, target := range s.b.empties[s.current[i]] {
			if s.mark[target] != s.round {
				s.mark[target] = s.round
				s.current = append(s.current, target)
			}
		}
	}
	slices.Sort(s.current)
}

// intern returns the state of d for current.
func (s *subsets) intern() int32 {
	s.key = s.key[:0]
	tag := int32(None)
	kept := s.current[:0]
	for _, state := range s.current {
		if t := s.tags[state]; t != None && (tag == None || t < tag) {
			tag = t
		}
		if len(s.b.edges[state]) > 0 {
			kept = append(kept, state)
			s.key = binary.LittleEndian.AppendUint32(s.key, uint32(state))
		}
	}
	s.key = binary.LittleEndian.AppendUint32(s.key, uint32(tag))
	if id, ok := s.ids[string(s.key)]; ok {
		return id
	}
	id := int32(len(s.states))
	s.ids[string(s.key)] = id
	s.states = append(s.states, slices.Clone(kept))
	s.d.tags = append(s.d.tags, tag)
	return id
}

// expand sets the transitions of a state of d.
func (s *subsets) expand(state int32) error {
	targets := make([][]int32, s.d.width)
	work := s.d.width
	for _, source := range s.states[state] {
		for _, e := range s.b.edges[source] {
			for _, class := range s.members[e.set] {
				targets[class] = append(targets[class], e.target)
				work++
			}
		}
	}
	for _, states := range targets {
		if len(states) == 0 {
			s.d.next = append(s.d.next, None)
			continue
		}
		s.closeOver(states)
		work += len(s.current)
		s.d.next = append(s.d.next, s.intern())
	}
	return s.budget.Spend(work)
}
