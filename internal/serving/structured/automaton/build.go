package automaton

import (
	"cmp"
	"slices"

	"llmmemory/internal/serving/meter"
)

// trim removes the states that cannot reach an accepting state.
func (d *DFA) trim() {
	n := len(d.tags)
	first := make([]int32, n+1) // of the sources of each state in the list sources
	for _, target := range d.next {
		if target != None {
			first[target+1]++
		}
	}
	for state := range n {
		first[state+1] += first[state]
	}
	sources, filled := make([]int32, first[n]), slices.Clone(first)
	for i, target := range d.next {
		if target != None {
			sources[filled[target]] = int32(i / d.width)
			filled[target]++
		}
	}
	alive := make([]bool, n)
	var work []int32
	for state, tag := range d.tags {
		if tag != None {
			alive[state] = true
			work = append(work, int32(state))
		}
	}
	for len(work) > 0 {
		state := work[len(work)-1]
		work = work[:len(work)-1]
		for _, source := range sources[first[state]:first[state+1]] {
			if !alive[source] {
				alive[source] = true
				work = append(work, source)
			}
		}
	}
	if n == 0 || !alive[0] {
		d.next, d.tags = nil, nil
		return
	}
	if slices.Contains(alive, false) {
		d.keep(alive)
	}
}

// keep renumbers the states that are kept.
func (d *DFA) keep(alive []bool) {
	ids := make([]int32, len(alive))
	count := int32(0)
	for state, keep := range alive {
		ids[state] = None
		if keep {
			ids[state] = count
			count++
		}
	}
	next, tags := make([]int32, 0, int(count)*d.width), make([]int32, 0, count)
	for state, keep := range alive {
		if !keep {
			continue
		}
		tags = append(tags, d.tags[state])
		for _, target := range d.next[state*d.width : (state+1)*d.width] {
			if target != None {
				target = ids[target]
			}
			next = append(next, target)
		}
	}
	d.next, d.tags = next, tags
}

// Explore returns an automaton. Its states are the values of S that step reaches from start. The function step
// returns the state after a character of the alphabet, or false if the character is not allowed. The function accept
// returns the tag of a state, or None. Characters outside the alphabet are not allowed.
func Explore[S comparable](alphabet []rune, start S, step func(S, rune) (S, bool), accept func(S) int32, budget *meter.Meter) (*DFA, error) {
	d := asciiClasses(alphabet)
	return d, explore(d, start, func(state S, class int) (S, bool) {
		if class == len(alphabet) {
			return start, false
		}
		return step(state, alphabet[class])
	}, accept, budget)
}

// explore adds the states to d that step reaches from start. The function step returns the state after a
// character of a class, and false if that class is not allowed. The function accept returns the tag of a state.
func explore[S comparable](d *DFA, start S, step func(S, int) (S, bool), accept func(S) int32, budget *meter.Meter) error {
	ids := map[S]int32{start: 0}
	states := []S{start}
	for i := 0; i < len(states); i++ {
		if err := budget.Spend(d.width); err != nil {
			return err
		}
		if err := budget.Keep(dfaStateBytes + 8*d.width); err != nil {
			return err
		}
		d.tags = append(d.tags, accept(states[i]))
		for class := range d.width {
			target, ok := step(states[i], class)
			if !ok {
				d.next = append(d.next, None)
				continue
			}
			id, ok := ids[target]
			if !ok {
				id = int32(len(states))
				ids[target] = id
				states = append(states, target)
			}
			d.next = append(d.next, id)
		}
	}
	d.trim()
	return nil
}

// asciiClasses returns an automaton that has classes but no states. Each character of the alphabet is a
// class, and all other characters together are the last class.
func asciiClasses(alphabet []rune) *DFA {
	d := &DFA{width: len(alphabet) + 1}
	classes := make([]int32, len(alphabet)) // sorted by their characters
	for i := range classes {
		classes[i] = int32(i)
	}
	slices.SortFunc(classes, func(i, j int32) int { return cmp.Compare(alphabet[i], alphabet[j]) })
	other := int32(len(alphabet))
	next := rune(0)
	for _, class := range classes {
		r := alphabet[class]
		if r > next {
			d.starts, d.class = append(d.starts, next), append(d.class, other)
		}
		d.starts, d.class = append(d.starts, r), append(d.class, class)
		next = r + 1
	}
	d.starts, d.class = append(d.starts, next), append(d.class, other)
	return d
}

// Lengths returns the automaton of all texts with minimum to maximum characters. If maximum is below
// 0, there is no upper limit.
func Lengths(minimum, maximum int, budget *meter.Meter) (*DFA, error) {
	last := maximum
	if maximum < 0 {
		last = minimum
	}
	if err := budget.Spend(last + 1); err != nil {
		return nil, err
	}
	if err := budget.Keep(8 * (last + 1)); err != nil {
		return nil, err
	}
	d := &DFA{starts: []rune{0}, class: []int32{0}, width: 1}
	if maximum >= 0 && maximum < minimum {
		return d, nil
	}
	d.next, d.tags = make([]int32, 0, last+1), make([]int32, 0, last+1)
	for i := range last + 1 {
		next, tag := int32(i+1), int32(None)
		if i == last {
			next = None
			if maximum < 0 {
				next = int32(last)
			}
		}
		if i >= minimum {
			tag = 0
		}
		d.next, d.tags = append(d.next, next), append(d.tags, tag)
	}
	return d, nil
}

// Texts returns the automaton that accepts the given texts. The tag of a text is its index in the
// slice. If two texts are equal, the first index counts.
func Texts(texts []string, budget *meter.Meter) (*DFA, error) {
	d, err := newTree(texts, budget)
	if err != nil {
		return nil, err
	}
	if empty := slices.Index(texts, ""); empty >= 0 {
		d.tags[0] = int32(empty)
	}
	if len(texts) == 0 {
		d.trim()
	}
	return d, nil
}

// Retag returns a copy of d in which the function tag has replaced each tag. Texts whose new tag is None are
// no longer accepted.
func (d *DFA) Retag(tag func(int32) int32) *DFA {
	out := &DFA{starts: d.starts, class: d.class, width: d.width, next: slices.Clone(d.next), tags: slices.Clone(d.tags)}
	for i, old := range out.tags {
		if old != None {
			out.tags[i] = tag(old)
		}
	}
	out.trim()
	return out
}
