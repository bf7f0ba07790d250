package jsonschema

import (
	"slices"

	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/lexeme"
)

// shape is a set of JSON values. A value is in the set if an alternative of its type allows it.
type shape struct {
	null, no, yes bool
	numbers       []numbers
	strings       []strings_
	arrays        []arrays
	objects       []objects
}

// unlimited is an upper limit that is none.
const unlimited = -1

// strings_ is an alternative of strings.
type strings_ struct {
	min, max int    // characters
	dfas     []form // all must accept
	listed   bool   // only those of list
	list     []string
}

// form is what a text must match. Forms with the same nonempty name are equal.
type form struct {
	*automaton.DFA
	name string
}

// arrays is an alternative of arrays.
type arrays struct {
	min, max int
	layers   []arrayLayer
	some     []conjunction // each is met by an element
	unique   bool
	source   *value // of unique
}

// arrayLayer is what one schema says of elements.
type arrayLayer struct {
	prefix []conjunction
	items  conjunction // of the elements after the prefix
}

// objects is an alternative of objects.
type objects struct {
	min, max int
	layers   []objectLayer
	required []string
	absent   []string
	names    []*automaton.DFA // all names must be accepted
	source   *value           // of what limits the names
}

// objectLayer is what one schema says of members.
type objectLayer struct {
	names      []string
	props      []conjunction
	index      map[string]int
	patterns   []pattern
	negated    bool        // its names have no place in the order
	additional conjunction // of members that are neither listed nor match a pattern
}

type pattern struct {
	dfa  *automaton.DFA
	then conjunction
}

func everything() *shape {
	return &shape{true, true, true, []numbers{{}}, []strings_{{max: unlimited}}, []arrays{{max: unlimited}}, []objects{{max: unlimited}}}
}

// scalar reports whether a value has neither elements nor members.
func (s *shape) scalar() bool { return len(s.arrays) == 0 && len(s.objects) == 0 }

func (s *strings_) free() bool {
	return s.min == 0 && s.max == unlimited && len(s.dfas) == 0 && !s.listed
}
func (a *arrays) free() bool {
	return a.min == 0 && a.max == unlimited && len(a.layers) == 0 && len(a.some) == 0 && !a.unique
}
func (o *objects) free() bool {
	return o.min == 0 && o.max == unlimited && len(o.layers) == 0 && len(o.required) == 0 && len(o.absent) == 0 && len(o.names) == 0
}

// union returns the values that are in any of the shapes.
func union(shapes ...*shape) *shape {
	out := &shape{}
	for _, s := range shapes {
		out.null, out.no, out.yes = out.null || s.null, out.no || s.no, out.yes || s.yes
		out.numbers = append(out.numbers, s.numbers...)
		out.strings = append(out.strings, s.strings...)
		out.arrays = append(out.arrays, s.arrays...)
		out.objects = append(out.objects, s.objects...)
	}
	// An alternative that allows everything makes the others needless.
	if i := slices.IndexFunc(out.numbers, func(n numbers) bool { return n.free() }); i >= 0 {
		out.numbers = out.numbers[i : i+1]
	}
	if i := slices.IndexFunc(out.strings, func(s strings_) bool { return s.free() }); i >= 0 {
		out.strings = out.strings[i : i+1]
	}
	if i := slices.IndexFunc(out.arrays, func(a arrays) bool { return a.free() }); i >= 0 {
		out.arrays = out.arrays[i : i+1]
	}
	if i := slices.IndexFunc(out.objects, func(o objects) bool { return o.free() }); i >= 0 {
		out.objects = out.objects[i : i+1]
	}
	out.joinLists()
	return out
}

// joinLists makes one alternative of all that are lists of strings.
func (s *shape) joinLists() {
	first := -1
	var kept []strings_
	for _, alternative := range s.strings {
		switch {
		case !alternative.listed:
			kept = append(kept, alternative)
		case first < 0:
			first = len(kept)
			alternative.list = slices.Clone(alternative.list)
			kept = append(kept, alternative)
		default:
			kept[first].list = append(kept[first].list, alternative.list...)
		}
	}
	s.strings = kept
}

// intersect returns the values that are in both shapes. It spends one unit of the budget for each pair
// of alternatives.
func intersect(a, b *shape, budget *automaton.Budget) (*shape, error) {
	out := &shape{null: a.null && b.null, no: a.no && b.no, yes: a.yes && b.yes}
	pairs := len(a.numbers)*len(b.numbers) + len(a.strings)*len(b.strings) + len(a.arrays)*len(b.arrays) + len(a.objects)*len(b.objects)
	if err := budget.Spend(pairs * alternativeWork); err != nil {
		return nil, err
	}
	for _, x := range a.numbers {
		for _, y := range b.numbers {
			if n, ok := x.and(y); ok {
				out.numbers = append(out.numbers, n)
			}
		}
	}
	for _, x := range a.strings {
		for _, y := range b.strings {
			if s, ok := x.and(y); ok {
				out.strings = append(out.strings, s)
			}
		}
	}
	for _, x := range a.arrays {
		for _, y := range b.arrays {
			if s, ok := x.and(y); ok {
				out.arrays = append(out.arrays, s)
			}
		}
	}
	for _, x := range a.objects {
		for _, y := range b.objects {
			if s, ok := x.and(y); ok {
				out.objects = append(out.objects, s)
			}
		}
	}
	return out, nil
}

// alternativeWork is the work of one pair of alternatives.
const alternativeWork = 20

// lower returns the smaller of two upper limits.
func lower(a, b int) int {
	if a == unlimited || b != unlimited && b < a {
		return b
	}
	return a
}

func (s strings_) and(o strings_) (strings_, bool) {
	if s.free() {
		return o, true
	}
	if o.free() {
		return s, true
	}
	s.min, s.max = max(s.min, o.min), lower(s.max, o.max)
	s.dfas = slices.Concat(s.dfas, o.dfas)
	if o.listed {
		if s.listed {
			o.list = slices.DeleteFunc(slices.Clone(o.list), func(text string) bool { return !slices.Contains(s.list, text) })
		}
		s.listed, s.list = true, o.list
	}
	if s.listed {
		var kept []string
		for _, text := range s.list {
			if s.allows(text) {
				kept = append(kept, text)
			}
		}
		return strings_{max: unlimited, listed: true, list: kept}, len(kept) > 0
	}
	return s, s.max == unlimited || s.min <= s.max
}

// allows reports whether a text has the length and the form.
func (s *strings_) allows(text string) bool {
	length := len([]rune(text))
	if length < s.min || s.max != unlimited && length > s.max {
		return false
	}
	return !slices.ContainsFunc(s.dfas, func(d form) bool { return d.Match(text) == automaton.None })
}

// automaton returns the texts of an alternative.
func (s *strings_) automaton(budget *automaton.Budget) (*automaton.DFA, error) {
	d, err := s.form(budget)
	if err != nil || s.min == 0 && s.max == unlimited {
		return d, err
	}
	lengths, err := automaton.Lengths(s.min, s.max, budget)
	if err != nil {
		return nil, err
	}
	return automaton.Intersect(d, lengths, budget)
}

// form returns the texts of an alternative, of whatever length.
func (s *strings_) form(budget *automaton.Budget) (*automaton.DFA, error) {
	d := automaton.All()
	if s.listed {
		texts, err := automaton.Texts(s.list, budget)
		if err != nil {
			return nil, err
		}
		d = texts.Untagged()
	}
	var err error
	for i, next := range s.dfas {
		if i == 0 && !s.listed {
			d = next.DFA
			continue
		}
		if d, err = automaton.Intersect(d, next.DFA, budget); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// texts is an automaton that may be empty.
type texts interface {
	lexeme.Texts
	Empty() bool
}

// texts returns the same texts as automaton, without a stored state for each length.
func (s *strings_) texts(budget *automaton.Budget) (texts, error) {
	d, err := s.form(budget)
	if err != nil || s.min == 0 && s.max == unlimited {
		return d, err
	}
	if automaton.LimitWork(d, s.min, s.max) > budget.Left()/4 {
		return s.automaton(budget) // which has few states if d counts characters itself
	}
	return automaton.Limit(d, s.min, s.max, budget)
}

func (a arrays) and(b arrays) (arrays, bool) {
	a.min, a.max = max(a.min, b.min), lower(a.max, b.max)
	a.layers = slices.Concat(a.layers, b.layers)
	a.some = slices.Concat(a.some, b.some)
	if b.unique {
		a.unique, a.source = true, b.source
	}
	return a, a.max == unlimited || a.min <= a.max
}

func (o objects) and(p objects) (objects, bool) {
	if o.source == nil {
		o.source = p.source
	}
	o.min, o.max = max(o.min, p.min), lower(o.max, p.max)
	o.layers = slices.Concat(o.layers, p.layers)
	o.names = slices.Concat(o.names, p.names)
	o.absent = slices.Concat(o.absent, p.absent)
	for i, name := range p.required {
		if i == 0 {
			o.required = slices.Clone(o.required)
		}
		if !slices.Contains(o.required, name) {
			o.required = append(o.required, name)
		}
	}
	conflict := slices.ContainsFunc(o.required, func(name string) bool { return slices.Contains(o.absent, name) })
	return o, !conflict && (o.max == unlimited || max(o.min, len(o.required)) <= o.max)
}
