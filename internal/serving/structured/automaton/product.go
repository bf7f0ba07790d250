package automaton

import "llmmemory/internal/serving/meter"

// Combine returns the automaton that runs x and y in parallel. The function tag computes the tag of a text from its
// tags in x and in y. If an automaton does not accept the text, the tag in it is None.
func Combine(x, y *DFA, tag func(x, y int32) int32, budget *meter.Meter) (*DFA, error) {
	d, pairs := joinClasses(x, y)
	if err := budget.Spend(len(d.starts)); err != nil {
		return nil, err
	}
	type pair struct{ x, y int32 }
	start := pair{None, None}
	if !x.Empty() {
		start.x = 0
	}
	if !y.Empty() {
		start.y = 0
	}
	// deadX means that the combination rejects every text that only y accepts. Whether it does must not depend on the tag
	// in y, because only the tag 0 is tried. If x has no state after a text, x rejects every text that begins with it. The
	// combination then rejects them too, so it needs no state. deadY is the same with x and y exchanged.
	deadX, deadY := tag(None, 0) == None, tag(0, None) == None
	accept := func(p pair) int32 { return tag(x.tagOrNone(p.x), y.tagOrNone(p.y)) }
	return d, explore(d, start, func(p pair, class int) (pair, bool) {
		next := pair{x.nextOrNone(p.x, pairs[class][0]), y.nextOrNone(p.y, pairs[class][1])}
		return next, !(next.x == None && (deadX || next.y == None) || next.y == None && deadY)
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
// they are in the same class of x and in the same class of y. The second result has, for each class, the
// class of x and the class of y that contain its characters.
func joinClasses(x, y *DFA) (*DFA, [][2]int32) {
	d := &DFA{}
	ids := map[[2]int32]int32{}
	var pairs [][2]int32
	for i, j := 0, 0; i < len(x.starts) || j < len(y.starts); {
		var start rune
		switch {
		case j == len(y.starts) || i < len(x.starts) && x.starts[i] < y.starts[j]:
			start = x.starts[i]
			i++
		case i == len(x.starts) || y.starts[j] < x.starts[i]:
			start = y.starts[j]
			j++
		default:
			start = x.starts[i]
			i, j = i+1, j+1
		}
		classes := [2]int32{x.class[i-1], y.class[j-1]}
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

// Intersect returns the automaton of the texts that both x and y accept. Texts keep their tags in x.
func Intersect(x, y *DFA, budget *meter.Meter) (*DFA, error) {
	return Combine(x, y, func(x, y int32) int32 {
		if y == None {
			return None
		}
		return x
	}, budget)
}

// Subtract returns the automaton of the texts that x accepts and y does not. Texts keep their tags in x.
func Subtract(x, y *DFA, budget *meter.Meter) (*DFA, error) {
	return Combine(x, y, func(x, y int32) int32 {
		if y != None {
			return None
		}
		return x
	}, budget)
}

// Join returns the automaton of the texts that x or y accepts. A text that both accept keeps its tag in x.
func Join(x, y *DFA, budget *meter.Meter) (*DFA, error) {
	return Combine(x, y, func(x, y int32) int32 {
		if x != None {
			return x
		}
		return y
	}, budget)
}

// All returns the automaton of every text.
func All() *DFA {
	return &DFA{starts: []rune{0}, class: []int32{0}, width: 1, next: []int32{0}, tags: []int32{0}}
}

// Nothing returns the automaton that accepts no text.
func Nothing() *DFA { return &DFA{starts: []rune{0}, class: []int32{0}, width: 1} }
