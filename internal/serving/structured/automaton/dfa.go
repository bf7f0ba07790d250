package automaton

import "slices"

// None is the state after a character that no accepted text has at this place, and the tag of a state that does not
// accept.
const None = -1

// DFA is a deterministic automaton whose states can all reach an accepting one. State 0 is the start. A DFA that
// accepts no text has no states. It does not change once it is built.
type DFA struct {
	starts []rune  // where each segment of the alphabet begins, in ascending order, the first 0
	class  []int32 // of each segment; surrogates have any
	width  int     // number of classes
	next   []int32 // next[state*width+class], or None
	tags   []int32 // of each state, or None
}

// Empty reports whether d accepts no text.
func (d *DFA) Empty() bool { return len(d.tags) == 0 }

// States returns the number of states.
func (d *DFA) States() int { return len(d.tags) }

// Classes returns the number of classes of characters: no state tells two characters of a class apart.
func (d *DFA) Classes() int { return d.width }

// Class returns the class of a character.
func (d *DFA) Class(r rune) int32 { return d.class[d.segment(r)] }

func (d *DFA) segment(r rune) int {
	i, found := slices.BinarySearch(d.starts, r)
	if !found {
		i--
	}
	return i
}

// Next returns the state after a character of a class, or None.
func (d *DFA) Next(state, class int32) int32 { return d.next[int(state)*d.width+int(class)] }

// Tag returns the tag with which a state accepts, or None.
func (d *DFA) Tag(state int32) int32 { return d.tags[state] }

// Segments calls visit for each run of characters from lo to hi that have the same class, until it returns false.
func (d *DFA) Segments(lo, hi rune, visit func(lo, hi rune, class int32) bool) {
	for i := d.segment(lo); i < len(d.starts) && d.starts[i] <= hi; i++ {
		end := rune(MaxRune)
		if i+1 < len(d.starts) {
			end = d.starts[i+1] - 1
		}
		if !visit(max(lo, d.starts[i]), min(hi, end), d.class[i]) {
			return
		}
	}
}

// Match returns the tag of a text, or None.
func (d *DFA) Match(text string) int32 {
	if d.Empty() {
		return None
	}
	state := int32(0)
	for _, r := range text {
		if state = d.Next(state, d.Class(r)); state == None {
			return None
		}
	}
	return d.tags[state]
}

// Infinite reports whether d accepts texts of any length.
func (d *DFA) Infinite() bool {
	const unseen, open, done = 0, 1, 2
	marks := make([]int8, d.States())
	type frame struct {
		state int32
		class int
	}
	if d.Empty() {
		return false
	}
	stack := []frame{{0, 0}}
	marks[0] = open
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if top.class == d.width {
			marks[top.state] = done
			stack = stack[:len(stack)-1]
			continue
		}
		to := d.Next(top.state, int32(top.class))
		top.class++
		switch {
		case to == None || marks[to] == done:
		case marks[to] == open:
			return true
		default:
			marks[to] = open
			stack = append(stack, frame{to, 0})
		}
	}
	return false
}

// Texts returns all texts that d accepts if they are at most limit, and whether they are.
func (d *DFA) Texts(limit int) ([]string, bool) {
	if d.Empty() {
		return nil, true
	}
	if d.Infinite() {
		return nil, false
	}
	var texts []string
	var walk func(state int32, text []rune) bool
	walk = func(state int32, text []rune) bool {
		if d.tags[state] != None {
			if texts = append(texts, string(text)); len(texts) > limit {
				return false
			}
		}
		complete := true
		d.Segments(0, MaxRune, func(lo, hi rune, class int32) bool {
			to := d.Next(state, class)
			if to == None || lo >= surrogateLow && hi <= surrogateHigh {
				return true
			}
			for r := lo; r <= hi && complete; r++ {
				complete = walk(to, append(text, r))
			}
			return complete
		})
		return complete
	}
	if !walk(0, nil) {
		return nil, false
	}
	return texts, true
}

// Untagged returns an automaton of the same texts that all have tag 0.
func (d *DFA) Untagged() *DFA {
	out := *d
	out.tags = slices.Clone(d.tags)
	for i, tag := range out.tags {
		if tag != None {
			out.tags[i] = 0
		}
	}
	return &out
}
