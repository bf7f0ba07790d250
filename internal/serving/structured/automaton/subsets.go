package automaton

import (
	"cmp"
	"encoding/binary"
	"slices"

	"llmmemory/internal/serving/meter"
)

// Build returns the deterministic automaton. If a text leads to accepting states with several tags, it
// gets the smallest tag.
func (b *Builder) Build() (*DFA, error) {
	d := &DFA{}
	members, err := b.alphabet(d)
	if err != nil || len(b.last) == 0 {
		return d, err
	}
	s := subsets{b: b, d: d, members: members, ids: map[string]int32{}, mark: make([]int32, len(b.last)),
		targets: make([][]int32, d.width), meter: b.meter}
	if err := s.start(); err != nil {
		return nil, err
	}
	for state := 0; state < len(s.states); state++ {
		if err := s.expand(state); err != nil {
			return nil, err
		}
	}
	d.trim()
	return d, nil
}

// event is a place in the alphabet where a set begins or ends.
type event struct {
	start rune
	set   int32
}

// alphabet sets the character classes of d. For each set of b, it returns the classes whose characters are in
// the set.
func (b *Builder) alphabet(d *DFA) ([][]int32, error) {
	if err := b.meter.Err(); err != nil {
		return nil, err
	}
	var events []event
	for id, set := range b.sets {
		if err := b.meter.Spend(2 * len(set)); err != nil {
			return nil, err
		}
		for _, r := range set {
			events = append(events, event{r.Lo, int32(id)}, event{r.Hi + 1, int32(id)})
		}
	}
	if err := b.meter.Keep(16 * len(events)); err != nil {
		return nil, err
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.start, b.start) })
	var current []int32 // the sets that contain the characters here, in ascending order
	var key []byte
	ids := map[string]int32{}
	members := make([][]int32, len(b.sets))
	add := func(start rune) error {
		if err := b.meter.Spend(1 + len(current)); err != nil {
			return err
		}
		key = key[:0]
		for _, set := range current {
			key = binary.LittleEndian.AppendUint32(key, uint32(set))
		}
		class, ok := ids[string(key)]
		if !ok {
			class = int32(len(ids))
			ids[string(key)] = class
			for _, set := range current {
				members[set] = append(members[set], class)
			}
		}
		d.starts, d.class = append(d.starts, start), append(d.class, class)
		return b.meter.Keep(8*len(current) + 8)
	}
	if len(events) == 0 || events[0].start > 0 {
		if err := add(0); err != nil {
			return nil, err
		}
	}
	for i := 0; i < len(events); {
		start := events[i].start
		for ; i < len(events) && events[i].start == start; i++ {
			if at, found := slices.BinarySearch(current, events[i].set); found {
				current = slices.Delete(current, at, at+1)
			} else {
				current = slices.Insert(current, at, events[i].set)
			}
		}
		if start > MaxRune {
			break
		}
		if err := add(start); err != nil {
			return nil, err
		}
	}
	d.width = len(ids)
	return members, nil
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
	current []int32   // the result of closeOver
	targets [][]int32 // memory that calls of expand share: the states of b after a character of each class
	key     []byte
	meter   *meter.Meter
}

// start makes the first state of d, which is the state before the first character of a text. The transitions that
// Builder.Begin added can be taken only there. start also sets s.tags: for each state of b, the tag of a text that ends
// in this state. At its end, a text can also take the transitions that Builder.End added.
func (s *subsets) start() (err error) {
	b := s.b
	if s.tags, err = s.endTags(b.ends); err != nil {
		return err
	}
	if len(b.begins) == 0 {
		if err := s.closeOver([]int32{0}); err != nil {
			return err
		}
		_, err = s.intern()
		return err
	}
	plain := s.tags
	if s.tags, err = s.endTags(slices.Concat(b.ends, b.begins)); err != nil {
		return err
	}
	last, arcs := slices.Clone(b.last), len(b.arcs)
	for _, e := range b.begins {
		b.Empty(e[0], e[1])
	}
	if err := s.closeOver([]int32{0}); err != nil {
		return err
	}
	b.last, b.arcs = last, b.arcs[:arcs]
	if _, err := s.intern(); err != nil {
		return err
	}
	s.tags = plain
	return nil
}

// endTags returns the tag that each state of b has if the text ends there. This is the smallest tag among those of the
// state itself and of all states that can be reached from it without reading a character. The transitions in extra
// count as transitions that read no character. If extra is empty, endTags returns only each state's own tag.
func (s *subsets) endTags(extra [][2]int32) ([]int32, error) {
	tags := slices.Clone(s.b.tags)
	if len(extra) == 0 {
		return tags, nil
	}
	sources := make([][]int32, len(tags)) // of the transitions to each state
	for source, i := range s.b.last {
		for ; i != none; i = s.b.arcs[i].before {
			if a := s.b.arcs[i]; a.set == none {
				sources[a.target] = append(sources[a.target], int32(source))
			}
		}
	}
	for _, e := range extra {
		sources[e[1]] = append(sources[e[1]], e[0])
	}
	var accepting []int32
	for state, tag := range tags {
		if tag != None {
			accepting = append(accepting, int32(state))
		}
	}
	slices.SortFunc(accepting, func(x, y int32) int { return cmp.Compare(tags[x], tags[y]) })
	done := make([]bool, len(tags))
	for _, state := range accepting { // small tags first, so each state gets its tag once
		tag := s.b.tags[state]
		for work := []int32{state}; len(work) > 0; {
			state := work[len(work)-1]
			work = work[:len(work)-1]
			if done[state] {
				continue
			}
			done[state], tags[state] = true, tag
			work = append(work, sources[state]...)
		}
	}
	return tags, s.meter.Spend(len(tags) + len(s.b.arcs) + len(extra))
}

// closeOver sets current to the states that can be reached from the given states without a character,
// in ascending order.
func (s *subsets) closeOver(states []int32) error {
	s.round++
	s.current = s.current[:0]
	for _, state := range states {
		if s.mark[state] != s.round {
			s.mark[state] = s.round
			s.current = append(s.current, state)
		}
	}
	for i := 0; i < len(s.current); i++ {
		for at := s.b.last[s.current[i]]; at != none; at = s.b.arcs[at].before {
			if a := s.b.arcs[at]; a.set == none && s.mark[a.target] != s.round {
				s.mark[a.target] = s.round
				s.current = append(s.current, a.target)
			}
		}
	}
	slices.Sort(s.current)
	return s.meter.Spend(len(s.current))
}

// intern returns the state of d for current.
func (s *subsets) intern() (int32, error) {
	s.key = s.key[:0]
	tag := int32(None)
	kept := s.current[:0]
	for _, state := range s.current {
		if t := s.tags[state]; t != None && (tag == None || t < tag) {
			tag = t
		}
		if s.reads(state) {
			kept = append(kept, state)
			s.key = binary.LittleEndian.AppendUint32(s.key, uint32(state))
		}
	}
	s.key = binary.LittleEndian.AppendUint32(s.key, uint32(tag))
	if id, ok := s.ids[string(s.key)]; ok {
		return id, nil
	}
	if err := s.meter.Keep(dfaStateBytes + 8*len(kept) + 8*s.d.width); err != nil {
		return 0, err
	}
	id := int32(len(s.states))
	s.ids[string(s.key)] = id
	s.states = append(s.states, slices.Clone(kept))
	s.d.tags = append(s.d.tags, tag)
	return id, nil
}

// dfaStateBytes is about what a state of a DFA takes while the DFA is built, besides its transitions.
const dfaStateBytes = 100

// reads reports whether a transition of a state reads a character.
func (s *subsets) reads(state int32) bool {
	for i := s.b.last[state]; i != none; i = s.b.arcs[i].before {
		if s.b.arcs[i].set != none {
			return true
		}
	}
	return false
}

// expand sets the transitions of a state of d.
func (s *subsets) expand(state int) error {
	if err := s.meter.Spend(s.d.width); err != nil {
		return err
	}
	for class := range s.targets {
		s.targets[class] = s.targets[class][:0]
	}
	for _, source := range s.states[state] {
		for i := s.b.last[source]; i != none; i = s.b.arcs[i].before {
			a := s.b.arcs[i]
			if a.set == none {
				continue
			}
			if err := s.meter.Spend(len(s.members[a.set])); err != nil {
				return err
			}
			for _, class := range s.members[a.set] {
				s.targets[class] = append(s.targets[class], a.target)
			}
		}
	}
	s.states[state] = nil
	var before []int32 // the targets of the last class that had any, and the state after it
	var known int32
	for _, states := range s.targets {
		if len(states) == 0 {
			s.d.next = append(s.d.next, None)
			continue
		}
		if !slices.Equal(states, before) {
			if err := s.closeOver(states); err != nil {
				return err
			}
			var err error
			if known, err = s.intern(); err != nil {
				return err
			}
			before = states
		}
		s.d.next = append(s.d.next, known)
	}
	return nil
}
