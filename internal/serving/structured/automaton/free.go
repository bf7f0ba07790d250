package automaton

import (
	"slices"
	"unicode/utf8"

	"llmmemory/internal/serving/meter"
)

// Free returns the automaton of free text, which may be followed by one of the texts in ends. The free text contains
// none of the texts in excluded. A text in ends that is complete ends the accepted text, whose tag is the index of that
// text. If several texts in ends end at the same character, the tag is that of the longest one. Free text without a
// text of ends is accepted with the tag len(ends). The texts in ends must not be empty.
func Free(ends, excluded []string, m *meter.Meter) (*DFA, error) {
	ending, err := occurrences(ends, m)
	if err != nil {
		return nil, err
	}
	without, err := occurrences(excluded, m)
	if err != nil {
		return nil, err
	}
	d, pairs := joinClasses(ending.DFA, without.DFA)
	if err := m.Spend(len(d.starts)); err != nil {
		return nil, err
	}
	step := func(s freeState, class int) (freeState, bool) {
		if ending.tags[s.mark] != None {
			return s, false
		}
		next := freeState{mark: ending.Next(s.mark, pairs[class][0]), without: None, since: s.since}
		if s.since == clean {
			if next.without = without.Next(s.without, pairs[class][1]); without.tags[next.without] != None {
				next.without, next.since = None, 0
			}
		} else {
			next.since++
		}
		return next, next.since < ending.depth[next.mark]
	}
	lengths := make([]int, len(ends))
	for i, text := range ends {
		lengths[i] = utf8.RuneCountInString(text)
	}
	return d, explore(d, freeState{since: clean}, step, func(s freeState) int32 {
		switch tag := ending.tags[s.mark]; {
		case tag != None && int(s.since) < lengths[tag]:
			return tag
		case tag == None && s.since == clean:
			return int32(len(ends))
		}
		return None
	}, m)
}

// freeState is a state of Free. If an excluded text has ended, only a text of ends may follow that began before the
// excluded text ended.
type freeState struct {
	mark, without int32 // the states of the occurrences of ends and of excluded; without is None unless since is clean
	since         int32 // characters after the first excluded text, or clean
}

const clean = -1 // no excluded text so far

// finder is an automaton that finds texts: the one of Aho and Corasick, with all transitions. Its states are the
// prefixes of the texts: after any text, the state is the longest prefix with which this text ends. The tag of a state
// is the index of the longest of the texts with which it ends.
type finder struct {
	*DFA
	depth []int32 // characters of the prefix that each state is
}

// occurrences returns the automaton that finds the given texts. If a text is empty, it is found nowhere.
func occurrences(texts []string, m *meter.Meter) (*finder, error) {
	t, err := newTree(texts, m)
	if err != nil {
		return nil, err
	}
	f := &finder{t, make([]int32, len(t.tags))}
	links := make([]int32, len(t.tags)) // the longest other state with which a state ends
	order := make([]int32, 1, len(t.tags))
	for i := 0; i < len(order); i++ {
		state := order[i]
		if err := m.Spend(t.width); err != nil {
			return nil, err
		}
		if t.tags[state] == None {
			t.tags[state] = t.tags[links[state]]
		}
		row, link := t.next[int(state)*t.width:][:t.width], t.next[int(links[state])*t.width:][:t.width]
		for class, child := range row {
			switch {
			case child == None && state == 0:
				row[class] = 0
			case child == None:
				row[class] = link[class]
			default:
				f.depth[child] = f.depth[state] + 1
				if state != 0 {
					links[child] = link[class]
				}
				order = append(order, child)
			}
		}
	}
	return f, nil
}

// newTree returns the tree of texts as an automaton. Unlike other automata, it has a state even without texts. The tag
// of a text is its index; if two texts are equal, the first index counts. Empty texts are left out.
func newTree(texts []string, m *meter.Meter) (*DFA, error) {
	seen := map[rune]struct{}{}
	for _, text := range texts {
		if err := m.Spend(1 + len(text)); err != nil {
			return nil, err
		}
		for _, r := range text {
			seen[r] = struct{}{}
		}
	}
	alphabet := make([]rune, 0, len(seen))
	for r := range seen {
		alphabet = append(alphabet, r)
	}
	slices.Sort(alphabet)
	d := asciiClasses(alphabet)
	state := func() (int32, error) {
		if err := m.Spend(d.width); err != nil {
			return 0, err
		}
		if err := m.Keep(16 + 8*d.width); err != nil {
			return 0, err
		}
		for range d.width {
			d.next = append(d.next, None)
		}
		d.tags = append(d.tags, None)
		return int32(len(d.tags) - 1), nil
	}
	if _, err := state(); err != nil {
		return nil, err
	}
	for i, text := range texts {
		at := int32(0)
		for _, r := range text {
			edge := int(at)*d.width + int(d.Class(r))
			if d.next[edge] == None {
				child, err := state()
				if err != nil {
					return nil, err
				}
				d.next[edge] = child
			}
			at = d.next[edge]
		}
		if at != 0 && d.tags[at] == None {
			d.tags[at] = int32(i)
		}
	}
	return d, nil
}
