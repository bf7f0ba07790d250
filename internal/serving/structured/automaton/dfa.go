package automaton

import "slices"

// None is the result of a missing transition. It is also the tag of a state that does not accept.
const None = -1

// DFA is a deterministic automaton. Each of its states can reach an accepting state, and state 0 is
// the start. A DFA that accepts no text has no states. A DFA does not change after it is built.
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

// Class returns the class of a character. No state distinguishes two characters of the same class.
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

// Segments calls visit for each run of characters of the same class between lo and hi, in ascending order,
// until visit returns false.
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

// Untagged returns an automaton that accepts the same texts, all with tag 0.
func (d *DFA) Untagged() *DFA { return d.Retag(func(int32) int32 { return 0 }) }
