package automaton

import "slices"

// Free returns the automaton of free text that contains none of the texts in without. An accepted text ends
// with the first occurrence of a text in ends, and its tag is the index of that text. If several texts in
// ends end at the same character, the tag is that of the longest one. A text that contains no text of ends is
// accepted with the tag len(ends). The texts in ends must not be empty.
func Free(ends, without []string, budget *Budget) (*DFA, error) {
	first, err := until(ends, budget)
	if err != nil || len(without) == 0 {
		return first, err
	}
	clean, err := until(without, budget)
	if err != nil {
		return nil, err
	}
	var b Builder
	from, to := b.State(), b.State()
	b.Embed(clean.Retag(func(tag int32) int32 {
		if int(tag) < len(without) {
			return None
		}
		return 0
	}), from, to)
	b.Accept(to, 0)
	for _, text := range ends {
		b.Accept(b.text(to, text), 0)
	}
	clean, err = b.Build(budget)
	if err != nil {
		return nil, err
	}
	return Intersect(first, clean, budget)
}

// until returns what Free returns if without is empty.
func until(ends []string, budget *Budget) (*DFA, error) {
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

// text adds a path that starts at the state from and reads text. It returns the last state of the path.
func (b *Builder) text(from int32, text string) int32 {
	for _, r := range text {
		to := b.State()
		b.Edge(from, Set{{r, r}}, to)
		from = to
	}
	return from
}
