package automaton

// Combine returns the automaton that runs a and b in parallel. The function tag computes the tag of a text from its
// tags in a and in b. If an automaton does not accept the text, the tag in it is None.
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
	// deadA means that the combination rejects every text that only the automaton b accepts. It then needs no state
	// for a text after which the automaton a has no state. deadB is the same with a and b exchanged.
	deadA, deadB := tag(None, 0) == None, tag(0, None) == None
	accept := func(p pair) int32 { return tag(a.tagOrNone(p.a), b.tagOrNone(p.b)) }
	return d, explore(d, start, func(p pair, class int) (pair, bool) {
		next := pair{a.nextOrNone(p.a, pairs[class][0]), b.nextOrNone(p.b, pairs[class][1])}
		return next, !(next.a == None && (deadA || next.b == None) || next.b == None && deadB)
	}, accept, budget)
}

// nextOrNone returns what Next returns, and None if state is None.
func (d *DFA) nextOrNone(state, class int32) int32 {
	if state == None {
		return None
	}
	return d.Next(state, class)
}

// tagOrNone returns the tag of a state, and None if state is None.
func (d *DFA) tagOrNone(state int32) int32 {
	if state == None {
		return None
	}
	return d.tags[state]
}

// joinClasses returns an automaton that has classes but no states. Two characters are in the same class if
// they are in the same class of a and in the same class of b. The second result has, for each class, the
// class of a and the class of b that contain its characters.
func joinClasses(a, b *DFA) (*DFA, [][2]int32) {
	d := &DFA{}
	ids := map[[2]int32]int32{}
	var pairs [][2]int32
	for i, j := 0, 0; i < len(a.starts) || j < len(b.starts); {
		var start rune
		switch {
		case j == len(b.starts) || i < len(a.starts) && a.starts[i] < b.starts[j]:
			start = a.starts[i]
			i++
		case i == len(a.starts) || b.starts[j] < a.starts[i]:
			start = b.starts[j]
			j++
		default:
			start = a.starts[i]
			i, j = i+1, j+1
		}
		classes := [2]int32{a.class[i-1], b.class[j-1]}
		id, ok := ids[classes]
		if !ok {
			id = int32(len(pairs))
			ids[classes] = id
			pairs = append(pairs, classes)
		}
		d.starts, d.class = append(d.starts, start), append(d.class, id)
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
