package automaton

import (
	"slices"

	"llmmemory/internal/serving/meter"
)

// Free returns the automaton of free text, which may be followed by one of the texts in ends. The free text contains
// none of the texts in excluded. A text in ends that is complete ends the accepted text, whose tag is the index of that
// text. If several texts in ends end at the same character, the tag is that of the longest one. Free text without a
// text of ends is accepted with the tag len(ends). The texts in ends must not be empty.
func Free(ends, excluded []string, budget *meter.Meter) (*DFA, error) {
	first, err := freeUntil(ends, budget)
	if err != nil || len(excluded) == 0 {
		return first, err
	}
	clean, err := freeUntil(excluded, budget)
	if err != nil {
		return nil, err
	}
	var b Builder
	source, target := b.State(), b.State()
	b.Embed(clean.Retag(func(tag int32) int32 {
		if int(tag) < len(excluded) {
			return None
		}
		return 0
	}), source, target)
	b.Accept(target, 0)
	for _, text := range ends {
		b.Accept(b.text(target, text), 0)
	}
	clean, err = b.Build(budget)
	if err != nil {
		return nil, err
	}
	return Intersect(first, clean, budget)
}

// freeUntil returns what Free returns if excluded is empty.
func freeUntil(ends []string, budget *meter.Meter) (*DFA, error) {
	var b Builder
	start := b.State()
	b.Edge(start, Any, start)
	longest := make([]int, len(ends)) // the indices of ends, long ones first
	for i := range longest {
		longest[i] = i
	}
	slices.SortStableFunc(longest, func(i, j int) int { return len(ends[j]) - len(ends[i]) })
	for rank, i := range longest {
		b.Accept(b.text(start, ends[i]), int32(rank))
	}
	b.Accept(start, int32(len(ends))) // every state of d has this one
	d, err := b.Build(budget)
	if err != nil {
		return nil, err
	}
	for state, rank := range d.tags {
		if int(rank) == len(ends) {
			continue
		}
		d.tags[state] = int32(longest[rank])
		for class := range d.width {
			d.next[state*d.width+class] = None
		}
	}
	return d, nil
}

// text adds a path that begins at the given state and reads text. It returns the last state of the path.
func (b *Builder) text(state int32, text string) int32 {
	for _, r := range text {
		next := b.State()
		b.Edge(state, Set{{r, r}}, next)
		state = next
	}
	return state
}
