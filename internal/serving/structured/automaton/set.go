package automaton

import (
	"cmp"
	"slices"
	"unicode"
)

// MaxRune is the largest character of the alphabet.
const MaxRune = unicode.MaxRune

const (
	surrogateLow  = 0xD800
	surrogateHigh = 0xDFFF
)

// Range is the characters from Lo to Hi, both included.
type Range struct{ Lo, Hi rune }

// Set is a set of characters, stored as ranges in ascending order that neither overlap nor touch. It
// contains no surrogates, which are not characters: NewSet and Negate leave them out.
type Set []Range

// Any is all characters.
var Any = Set{{0, surrogateLow - 1}, {surrogateHigh + 1, MaxRune}}

// NewSet returns the set of the characters of all ranges, which may overlap and be in any order.
func NewSet(ranges ...Range) Set {
	var split []Range
	for _, r := range ranges {
		if r.Lo <= surrogateHigh && r.Hi >= surrogateLow {
			if r.Lo < surrogateLow {
				split = append(split, Range{r.Lo, surrogateLow - 1})
			}
			if r.Hi > surrogateHigh {
				split = append(split, Range{surrogateHigh + 1, r.Hi})
			}
			continue
		}
		split = append(split, r)
	}
	slices.SortFunc(split, func(a, b Range) int { return cmp.Compare(a.Lo, b.Lo) })
	var set Set
	for _, r := range split {
		if r.Lo > r.Hi {
			continue
		}
		if last := len(set) - 1; last >= 0 && r.Lo <= set[last].Hi+1 {
			set[last].Hi = max(set[last].Hi, r.Hi)
			continue
		}
		set = append(set, r)
	}
	return set
}

// Negate returns the characters that are not in s.
func (s Set) Negate() Set {
	var out []Range
	next := rune(0)
	for _, r := range s {
		out = append(out, Range{next, r.Lo - 1})
		next = r.Hi + 1
	}
	return NewSet(append(out, Range{next, MaxRune})...)
}
