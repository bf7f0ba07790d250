package jsonschema

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/lexeme"
)

// shape is a set of JSON values. A value is in the set if an alternative of its type allows it.
type shape struct {
	hasNull, hasFalse, hasTrue bool
	numbers                    []numbers
	strings                    []strings_
	arrays                     []arrays
	objects                    []objects
}

// unlimited as an upper limit means that there is none.
const unlimited = -1

// limits are the smallest and the largest number of characters, elements or members.
type limits struct {
	min, max     int
	minOf, maxOf origin // what sets them
}

// origin is a keyword of a schema that demands something.
type origin struct {
	schema  *value // or nil
	keyword string
	negated bool // the schema is negated
}

// anyNumber are limits that limit nothing.
var anyNumber = limits{max: unlimited}

func (l limits) any() bool { return l.min == 0 && l.max == unlimited }

func (l limits) allow(n int) bool { return n >= l.min && (l.max == unlimited || n <= l.max) }

func (l limits) intersect(o limits) limits {
	if o.min > l.min {
		l.min, l.minOf = o.min, o.minOf
	}
	if l.max == unlimited || o.max != unlimited && o.max < l.max {
		l.max, l.maxOf = o.max, o.maxOf
	}
	return l
}

// strings_ is an alternative of strings.
type strings_ struct {
	limits        // of characters
	dfas   []form // all must accept
	listed bool   // only those of list, all of which have the length and the form
	list   []string
}

// form is an automaton that a string must match. Two forms with the same nonempty name are equal.
type form struct {
	*automaton.DFA
	name string
}

// arrays is an alternative of arrays.
type arrays struct {
	limits
	layers   []arrayLayer
	contains []conjunction // for each of them, an element that satisfies it is required
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
	limits
	layers   []objectLayer
	required []string
	absent   []string         // names that no member has
	names    []*automaton.DFA // each accepts the names of all members
	source   *value           // of what limits the names
}

// objectLayer is what one schema says of members.
type objectLayer struct {
	names      []string
	props      []conjunction
	index      map[string]int
	patterns   []pattern
	negated    bool        // it comes from a negation: the order of its names does not count
	additional conjunction // of members that are neither listed nor match a pattern
}

type pattern struct {
	dfa     *automaton.DFA
	schemas conjunction
}

// alternative is implemented by numbers, strings_, arrays and objects.
type alternative[T any] interface {
	free() bool                                 // whether it allows every value of its type
	intersect(T, *meter.Meter) (T, bool, error) // what both allow; false if that is nothing
}

func everything() *shape {
	return &shape{true, true, true, []numbers{{}}, []strings_{{limits: anyNumber}}, []arrays{{limits: anyNumber}}, []objects{{limits: anyNumber}}}
}

// scalar reports whether a value has neither elements nor members.
func (s *shape) scalar() bool { return len(s.arrays) == 0 && len(s.objects) == 0 }

func (s strings_) free() bool {
	return s.any() && len(s.dfas) == 0 && !s.listed
}
func (a arrays) free() bool {
	return a.any() && len(a.layers) == 0 && len(a.contains) == 0 && !a.unique
}
func (o objects) free() bool {
	return o.any() && len(o.layers) == 0 && len(o.required) == 0 && len(o.absent) == 0 && len(o.names) == 0
}

// union returns the values that are in any of the shapes.
func union(shapes ...*shape) *shape {
	out := &shape{}
	for _, s := range shapes {
		out.hasNull, out.hasFalse, out.hasTrue = out.hasNull || s.hasNull, out.hasFalse || s.hasFalse, out.hasTrue || s.hasTrue
		out.numbers = append(out.numbers, s.numbers...)
		out.strings = append(out.strings, s.strings...)
		out.arrays = append(out.arrays, s.arrays...)
		out.objects = append(out.objects, s.objects...)
	}
	out.numbers, out.strings = needed(out.numbers), needed(out.strings)
	out.arrays, out.objects = needed(out.arrays), needed(out.objects)
	out.joinLists()
	return out
}

// needed returns the alternatives of one type. If one of them allows every value of the type, it returns only this one.
func needed[T alternative[T]](all []T) []T {
	if i := slices.IndexFunc(all, func(one T) bool { return one.free() }); i >= 0 {
		return all[i : i+1]
	}
	return all
}

// joinLists joins the alternatives that are lists of strings to one.
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

// intersect returns the values that are in both shapes.
func intersect(a, b *shape, budget *meter.Meter) (*shape, error) {
	out := &shape{hasNull: a.hasNull && b.hasNull, hasFalse: a.hasFalse && b.hasFalse, hasTrue: a.hasTrue && b.hasTrue}
	var err error
	if out.numbers, err = meet(a.numbers, b.numbers, budget); err != nil {
		return nil, err
	}
	if out.strings, err = meet(a.strings, b.strings, budget); err != nil {
		return nil, err
	}
	if out.arrays, err = meet(a.arrays, b.arrays, budget); err != nil {
		return nil, err
	}
	out.objects, err = meet(a.objects, b.objects, budget)
	return out, err
}

// meet returns the values of one type that both lists of alternatives allow.
func meet[T alternative[T]](a, b []T, budget *meter.Meter) ([]T, error) {
	if err := budget.Spend(len(a) * len(b) * alternativeWork); err != nil {
		return nil, err
	}
	var out []T
	for _, x := range a {
		for _, y := range b {
			both, ok, err := x.intersect(y, budget)
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, both)
			}
		}
	}
	return out, nil
}

const (
	alternativeWork = 20 // the work of one pair of alternatives
	copyWork        = 8  // entries of a list that are copied at the cost of one unit of work
	textWork        = 8  // characters of a text that are read at the cost of one unit of work
)

func (s strings_) intersect(o strings_, budget *meter.Meter) (strings_, bool, error) {
	switch {
	case s.free():
		return o, true, nil
	case o.free():
		return s, true, nil
	case s.listed:
		return s.only(&o, budget)
	case o.listed:
		return o.only(&s, budget)
	}
	s.limits = s.limits.intersect(o.limits)
	s.dfas = slices.Concat(s.dfas, o.dfas)
	return s, s.allow(s.min), budget.Spend(len(s.dfas) / copyWork)
}

// only returns those texts of s, which is a list, that o allows.
func (s strings_) only(o *strings_, budget *meter.Meter) (strings_, bool, error) {
	if err := budget.Spend(len(s.list) + len(o.list)); err != nil {
		return s, false, err
	}
	other := make(map[string]bool, len(o.list))
	for _, text := range o.list {
		other[text] = true
	}
	kept := strings_{limits: anyNumber, listed: true}
	for _, text := range s.list {
		if err := budget.Spend(len(text) * (1 + len(o.dfas)) / textWork); err != nil {
			return s, false, err
		}
		if o.allow(utf8.RuneCountInString(text)) && (!o.listed || other[text]) && !slices.ContainsFunc(o.dfas, func(d form) bool { return d.Match(text) == automaton.None }) {
			kept.list = append(kept.list, text)
		}
	}
	return kept, len(kept.list) > 0, nil
}

// automaton returns the texts of an alternative.
func (s *strings_) automaton(budget *meter.Meter) (*automaton.DFA, error) {
	d, err := s.form(budget)
	if err != nil || s.any() {
		return d, err
	}
	lengths, err := automaton.Lengths(s.min, s.max, budget)
	if err != nil {
		return nil, err
	}
	return automaton.Intersect(d, lengths, budget)
}

// form returns the texts of an alternative, of whatever length.
func (s *strings_) form(budget *meter.Meter) (*automaton.DFA, error) {
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

// texts returns an automaton that accepts the strings that s allows. If s limits the length, it is the result of
// automaton.Limit, which counts characters while it runs, instead of having a state for each length. If Limit would need
// more than a quarter of what is left of the budget, texts returns the result of s.automaton, which has few states if
// the form itself counts characters.
func (s *strings_) texts(budget *meter.Meter) (texts, error) {
	d, err := s.form(budget)
	if err != nil || s.any() {
		return d, err
	}
	limited, err := automaton.Limit(d, s.min, s.max, budget.Within(budget.Left()/4))
	if err != nil && budget.Err() == nil {
		return s.automaton(budget)
	}
	return limited, err
}

func (a arrays) intersect(b arrays, budget *meter.Meter) (arrays, bool, error) {
	a.limits = a.limits.intersect(b.limits)
	a.layers = slices.Concat(a.layers, b.layers)
	a.contains = slices.Concat(a.contains, b.contains)
	if b.unique {
		a.unique, a.source = true, b.source
	}
	return a, a.allow(a.min), budget.Spend(len(a.layers) + len(a.contains))
}

func (o objects) intersect(p objects, budget *meter.Meter) (objects, bool, error) {
	o.source, o.limits = cmp.Or(o.source, p.source), o.limits.intersect(p.limits)
	o.layers = slices.Concat(o.layers, p.layers)
	o.names = slices.Concat(o.names, p.names)
	o.absent = slices.Concat(o.absent, p.absent)
	o.required = distinct(o.required, p.required)
	ok := o.allow(max(o.min, len(o.required))) && !overlap(o.required, o.absent)
	return o, ok, budget.Spend(len(o.layers) + len(o.names) + (len(o.absent)+len(o.required))/copyWork)
}

// fewPairs is the number of pairs of names that are compared without an index.
const fewPairs = 64

// distinct returns the names of a and then those of b, each once. The names of a are distinct.
func distinct(a, b []string) []string {
	if len(b) == 0 {
		return a
	}
	out := slices.Clone(a)
	if (len(a)+len(b))*len(b) <= fewPairs {
		for _, name := range b {
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
		return out
	}
	known := make(map[string]bool, len(a)+len(b))
	for _, name := range a {
		known[name] = true
	}
	for _, name := range b {
		if !known[name] {
			known[name] = true
			out = append(out, name)
		}
	}
	return out
}

// overlap reports whether the lists have a name in common.
func overlap(a, b []string) bool {
	if len(a)*len(b) <= fewPairs {
		return slices.ContainsFunc(a, func(name string) bool { return slices.Contains(b, name) })
	}
	known := make(map[string]bool, len(a))
	for _, name := range a {
		known[name] = true
	}
	return slices.ContainsFunc(b, func(name string) bool { return known[name] })
}
