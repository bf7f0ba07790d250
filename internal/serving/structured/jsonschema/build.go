package jsonschema

import (
	"slices"

	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/grammar"
	"llmmemory/internal/serving/structured/lexeme"
)

const (
	maxContains = 4         // schemas of contains that apply to one array
	maxCount    = 20000     // counted elements or members
	maxLength   = 1_000_000 // characters that a string must have
)

// unsupportedLimit returns the error for a limit n that is larger than supported. The limit comes from one of
// the two keywords of the schema. If schema is nil, it comes from the length of prefixItems.
func unsupportedLimit(schema *value, minKeyword, maxKeyword string, n, supported int) error {
	if schema == nil {
		return automaton.ErrTooLarge
	}
	keyword := maxKeyword
	if schema.get(minKeyword) != nil && schema.get(maxKeyword) == nil {
		keyword = minKeyword
	}
	return refuse(schema, keyword, "%d is above %d, the largest supported value here", n, supported)
}

// arrays adds edges between two nodes for the arrays of an alternative. A node stands for the number of
// elements so far, and for the set of schemas of contains that an element has satisfied. If the number of
// elements is not limited, the same nodes stand for all numbers from which the next element has the same
// schemas.
func (b *builder) arrays(from, to grammar.Node, a *arrays) error {
	if a.unique && a.max != 0 && a.max != 1 {
		return refuse(a.source, "uniqueItems", "the keyword is not supported where maxItems is above 1")
	}
	last := max(a.prefix(), a.min)
	if a.max != unlimited {
		last = a.max
	}
	switch {
	case len(a.contains) > maxContains:
		return automaton.ErrTooLarge
	case last > maxCount:
		return unsupportedLimit(a.limited, "minItems", "maxItems", last, maxCount)
	}
	all := 1<<len(a.contains) - 1
	// element[met] is where an element begins, after[met] where it has ended.
	element, after := b.nodes(all+1), b.nodes(all+1)
	first := b.g.Node() // not element[0], to which a comma may lead
	if err := b.read(from, first, "["); err != nil {
		return err
	}
	b.g.Jump(first, element[0])
	if a.min == 0 && all == 0 {
		if err := b.read(first, to, "]"); err != nil {
			return err
		}
	}
	for i := 0; ; i++ {
		if i == a.max {
			return nil
		}
		if err := b.elements(a, i, element, after); err != nil {
			return err
		}
		if i+1 >= a.min {
			if err := b.read(after[all], to, "]"); err != nil {
				return err
			}
		}
		if a.max == unlimited && i >= last { // all elements from here on are the same
			for met := range after {
				if err := b.read(after[met], element[met], ","); err != nil {
					return err
				}
			}
			return nil
		}
		next := b.nodes(all + 1)
		for met := range after {
			if err := b.read(after[met], next[met], ","); err != nil {
				return err
			}
		}
		element, after = next, b.nodes(all+1)
	}
}

func (b *builder) nodes(n int) []grammar.Node {
	out := make([]grammar.Node, n)
	for i := range out {
		out[i] = b.g.Node()
	}
	return out
}

// elements adds the edges for element i. Index met of both slices is a bit set of the schemas of contains
// that the elements so far satisfy. An element leads from element[met] to after[met], or to after with one
// more bit.
func (b *builder) elements(a *arrays, i int, element, after []grammar.Node) error {
	own := b.element(a, i)
	for met := range element {
		if err := b.value(element[met], after[met], own); err != nil {
			return err
		}
		for j, contained := range a.contains {
			if met>>j&1 == 0 {
				if err := b.value(element[met], after[met|1<<j], b.and(own, contained)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// members is an object under construction.
type members struct {
	*builder
	o        *objects
	listed   []string
	values   []conjunction
	required []int    // places of required names among listed, ascending
	excluded []string // the names that are listed or absent: rest does not have them
	rest     unlisted
	others   *grammar.Terminal // the names of rest, if it is plain
	end      grammar.Node
}

// objects adds edges between two nodes for the objects of an alternative.
func (b *builder) objects(from, to grammar.Node, o *objects) error {
	m := &members{builder: b, o: o, listed: o.listed(), end: to}
	for i, name := range m.listed {
		m.values = append(m.values, b.member(o, name))
		if slices.Contains(o.required, name) {
			m.required = append(m.required, i)
		}
	}
	m.excluded = slices.Concat(m.listed, o.absent)
	var err error
	if m.rest, err = b.unlisted(o, m.listed); err != nil {
		return err
	}
	if m.rest.plain {
		if m.others, err = b.otherNames(m.excluded); err != nil {
			return err
		}
	}
	// Unlisted names can be equal, and JSON parsers keep only one of several members with the same name. So
	// at most one unlisted member counts for minProperties.
	if o.min > len(m.required)+1 && m.rest.exist() {
		return refuse(o.counted, "minProperties", "only one more than the required members is supported where other names than those of properties are possible")
	}
	first := b.g.Node()
	if err := b.read(from, first, "{"); err != nil {
		return err
	}
	minimum := o.min
	if minimum <= len(m.required) {
		minimum = 0 // the required ones are enough
	}
	top := minimum // counts from here on make no difference
	if o.max != unlimited {
		top = o.max
	}
	if (len(m.listed)+2)*(top+1) > maxCount {
		return unsupportedLimit(o.limited, "minProperties", "maxProperties", top, maxCount/(len(m.listed)+2)-1)
	}
	if minimum == 0 {
		if err := m.close(first, 0); err != nil {
			return err
		}
	}
	return m.grow(first, minimum, top)
}

// close adds an edge to the end of the object, unless a required name from index i on is missing.
func (m *members) close(from grammar.Node, i int) error {
	if m.nextRequired(i) < len(m.listed) {
		return nil
	}
	return m.read(from, m.end, "}")
}

// nextRequired returns the index of the first required name at i or after it, or the number of names if there
// is none.
func (m *members) nextRequired(i int) int {
	at, _ := slices.BinarySearch(m.required, i)
	if at == len(m.required) {
		return len(m.listed)
	}
	return m.required[at]
}

// grow adds the nodes and edges of the members. For each number of members up to top there is a layer of
// nodes. If more than top members are allowed, edges in the last layer lead back to it.
func (m *members) grow(first grammar.Node, minimum, top int) error {
	n := len(m.listed)
	kinds := len(m.rest.kinds)
	// At the node name[i], the names from index i on may come. At values[i], the value of the name with index
	// i comes. The values of unlisted names have the indices from n on, one for each kind.
	name := []grammar.Node{first}
	for count := 0; ; count++ {
		if m.o.max != unlimited && count == m.o.max {
			return nil
		}
		last := m.o.max == unlimited && count >= top
		values := m.nodes(n + kinds)
		for i, at := range name {
			m.names(at, i, values)
		}
		next := m.nodes(n + 1)
		after := m.nodes(n + 1) // after the value of name i-1
		for i := range n {
			if err := m.value(values[i], after[i+1], m.values[i]); err != nil {
				return err
			}
		}
		for kind := range kinds {
			if err := m.value(values[n+kind], after[n], m.rest.kinds[kind]); err != nil {
				return err
			}
		}
		for i := range after {
			if err := m.read(after[i], next[i], ","); err != nil {
				return err
			}
			if count+1 >= minimum {
				if err := m.close(after[i], i); err != nil {
					return err
				}
			}
		}
		name = next
		if last {
			for i, at := range name {
				m.names(at, i, values)
			}
			return nil
		}
	}
}

// names adds edges from a node to the values of the names that may come there: the listed names from index i
// up to the first required one, and unlisted names if no required name is missing.
func (m *members) names(from grammar.Node, i int, values []grammar.Node) {
	n := len(m.listed)
	stop := min(m.nextRequired(i)+1, n)
	others := m.nextRequired(i) == n
	if stop > i {
		t := grammar.LazyTerminal(func(alive func(int32) bool) *lexeme.Lexeme {
			var names []string
			var tags []int32
			for j := i; j < stop; j++ {
				if alive(int32(j - i)) {
					names, tags = append(names, m.listed[j]), append(tags, int32(j-i))
				}
			}
			return m.spaced(lexeme.Names(names, tags))
		})
		m.g.Read(from, t, values[i:stop]...)
	}
	if others && m.rest.plain {
		m.g.Read(from, m.others, values[n])
		return
	}
	if others && !m.rest.dfa.Empty() {
		t := grammar.LazyTerminal(func(alive func(int32) bool) *lexeme.Lexeme {
			return m.spaced(lexeme.Name("", m.rest.dfa.Retag(func(tag int32) int32 {
				if alive(tag) {
					return tag
				}
				return lexeme.None
			})))
		})
		m.g.Read(from, t, values[n:]...)
	}
}

// otherNames returns the lexeme of the names that are not excluded.
func (b *builder) otherNames(excluded []string) (*grammar.Terminal, error) {
	if len(excluded) == 0 {
		return b.terminal("name", func() (*lexeme.Lexeme, error) { return lexeme.AnyName(), nil })
	}
	return grammar.LazyTerminal(func(func(int32) bool) *lexeme.Lexeme { return b.spaced(lexeme.Others(excluded)) }), nil
}
