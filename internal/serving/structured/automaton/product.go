package automaton

// Combine returns the automaton that runs a and b in parallel. The function tag computes its tags from
// those of a and b. The argument for an automaton is None if it does not accept or has no state left.
func Combine(a, b *DFA, tag func(a, b int32) int32, budget *Budget) (*DFA, error) {
	d, pairs := joinClasses(a, b)
	if err := budget.Spend(len(d.starts)); err != nil {
		return nil, err
	}
	type pair struct{ a, b int32 }
	start := pair{None, None}
	if !a.Empty() {
		start.a = 0
	}
	if !b.Empty() {
		start.b = 0
	}
	// If a or b has no state left, the function tag shows whether any text can still be accepted.
	deadA, deadB := tag(None, 0) == None, tag(0, None) == None
	ids := map[pair]int32{start: 0}
	states := []pair{start}
	for i := 0; i < len(states); i++ {
		if err := budget.Spend(d.width); err != nil {
			return nil, err
		}
		at := states[i]
		tagA, tagB := int32(None), int32(None)
		if at.a != None {
			tagA = a.tags[at.a]
		}
		if at.b != None {
			tagB = b.tags[at.b]
		}
		d.tags = append(d.tags, tag(tagA, tagB))
		for _, c := range pairs {
			to := pair{None, None}
			if at.a != None {
				to.a = a.Next(at.a, c[0])
			}
			if at.b != None {
				to.b = b.Next(at.b, c[1])
			}
			if to.a == None && (deadA || to.b == None) || to.b == None && deadB {
				d.next = append(d.next, None)
				continue
			}
			id, ok := ids[to]
			if !ok {
				id = int32(len(states))
				ids[to] = id
				states = append(states, to)
			}
			d.next = append(d.next, id)
		}
	}
	d.trim()
	return d, nil
}

// joinClasses returns an automaton without states, and the pairs of a class of a and a class of b that
// are its classes.
func joinClasses(a, b *DFA) (*DFA, [][2]int32) {
	d := &DFA{}
	ids := map[[2]int32]int32{}
	var pairs [][2]int32
	for i, j := 0, 0; i < len(a.starts) || j < len(b.starts); {
		var at rune
		switch {
		case j == len(b.starts) || i < len(a.starts) && a.starts[i] < b.starts[j]:
			at = a.starts[i]
			i++
		case i == len(a.starts) || b.starts[j] < a.starts[i]:
			at = b.starts[j]
			j++
		default:
			at = a.starts[i]
			i, j = i+1, j+1
		}
		classes := [2]int32{a.class[i-1], b.class[j-1]}
		id, ok := ids[classes]
		if !ok {
			id = int32(len(pairs))
			ids[classes] = id
			pairs = append(pairs, classes)
		}
		d.starts, d.class = append(d.starts, at), append(d.class, id)
	}
	d.width = len(pairs)
	return d, pairs
}

// Intersect returns the texts that both accept, with a's tags.
func Intersect(a, b *DFA, budget *Budget) (*DFA, error) {
	return Combine(a, b, func(a, b int32) int32 {
		if b == None {
			return None
		}
		return a
	}, budget)
}

// Subtract returns the automaton of the texts that a accepts and b does not. Texts keep their tags in
// a.
func Subtract(a, b *DFA, budget *Budget) (*DFA, error) {
	return Combine(a, b, func(a, b int32) int32 {
		if b != None {
			return None
		}
		return a
	}, budget)
}

// Join returns the automaton of the texts that a or b accepts. A text that both accept gets its tag in
// a.
func Join(a, b *DFA, budget *Budget) (*DFA, error) {
	return Combine(a, b, func(a, b int32) int32 {
		if a != None {
			return a
		}
		return b
	}, budget)
}

// All returns the automaton of every text.
func All() *DFA {
	return &DFA{starts: []rune{0}, class: []int32{0}, width: 1, next: []int32{0}, tags: []int32{0}}
}

// Nothing returns the automaton that accepts no text.
func Nothing() *DFA { return &DFA{starts: []rune{0}, class: []int32{0}, width: 1} }
