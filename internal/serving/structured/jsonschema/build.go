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
// elements so far and for a set of the schemas in contains: those that one of the elements satisfies. If the
// number of elements is not limited, the last nodes stand for any larger number too, since the schemas of
// further elements are all the same.
func (b *builder) arrays(from, to grammar.Node, a *arrays) {
	last := max(a.prefix(), a.min)
	if a.max != unlimited {
		last = a.max
	}
	switch {
	case a.unique && a.max != 0 && a.max != 1:
		b.ok(refuse(a.source, "uniqueItems", "the keyword is not supported where maxItems is above 1"))
		return
	case len(a.contains) > maxContains:
		b.ok(automaton.ErrTooLarge)
		return
	case last > maxCount:
		b.ok(unsupportedLimit(a.limited, "minItems", "maxItems", last, maxCount))
		return
	}
	all := 1<<len(a.contains) - 1
	// element[met] is where an element begins, after[met] where it has ended.
	element, after := b.nodes(all+1), b.nodes(all+1)
	first := b.g.Node() // not element[0], to which a comma may lead
	b.read(from, first, "[")
	b.g.Jump(first, element[0])
	if a.min == 0 && all == 0 {
		b.read(first, to, "]")
	}
	for i := 0; i != a.max && b.err == nil; i++ {
		b.elements(a, i, element, after)
		if i+1 >= a.min {
			b.read(after[all], to, "]")
		}
		next, same := element, a.max == unlimited && i >= last // all elements from here on are the same
		if !same {
			next = b.nodes(all + 1)
		}
		for met := range after {
			b.read(after[met], next[met], ",")
		}
		if same {
			return
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

// elements adds the edges for element i. The slices element and after are indexed by the bit set met. It has a bit
// for each schema of contains that the elements so far satisfy. An edge leads from element[met] to after[met]. If the
// element satisfies another schema of contains, an edge leads to the node of after with the additional bit.
func (b *builder) elements(a *arrays, i int, element, after []grammar.Node) {
	own := b.element(a, i)
	for met := range element {
		b.value(element[met], after[met], own)
		for j, contained := range a.contains {
			if met>>j&1 == 0 {
				b.value(element[met], after[met|1<<j], b.and(own, contained))
			}
		}
	}
}

// members is an object under construction.
type members struct {
	*builder
	o        *objects
	listed   []string
	values   []conjunction
	required []int // places of required names among listed, ascending
	rest     unlisted
	others   *grammar.Terminal // the names of rest, if it is plain
	end      grammar.Node
}

// objects adds edges between two nodes for the objects of an alternative.
func (b *builder) objects(from, to grammar.Node, o *objects) {
	m := &members{builder: b, o: o, listed: o.listed(), end: to}
	for i, name := range m.listed {
		m.values = append(m.values, b.member(o, name))
		if slices.Contains(o.required, name) {
			m.required = append(m.required, i)
		}
	}
	var err error
	if m.rest, err = b.unlisted(o, m.listed); !b.ok(err) {
		return
	}
	if m.rest.plain {
		m.others = b.otherNames(slices.Concat(m.listed, o.absent))
	}
	// Unlisted names can be equal, and JSON parsers keep only one of several members with the same name. So
	// at most one unlisted member counts for minProperties.
	if o.min > len(m.required)+1 && m.rest.exist() {
		b.ok(refuse(o.counted, "minProperties", "only one more than the required members is supported where other names than those of properties are possible"))
		return
	}
	first := b.g.Node()
	b.read(from, first, "{")
	minimum := o.min
	if minimum <= len(m.required) {
		minimum = 0 // the required ones are enough
	}
	top := minimum // counts from here on make no difference
	if o.max != unlimited {
		top = o.max
	}
	if (len(m.listed)+2)*(top+1) > maxCount {
		b.ok(unsupportedLimit(o.limited, "minProperties", "maxProperties", top, maxCount/(len(m.listed)+2)-1))
		return
	}
	if minimum == 0 {
		m.close(first, 0)
	}
	m.grow(first, minimum, top)
}

// close adds an edge to the end of the object, unless a required name from index i on is missing.
func (m *members) close(from grammar.Node, i int) {
	if m.nextRequired(i) == len(m.listed) {
		m.read(from, m.end, "}")
	}
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

// grow adds the nodes and edges of the members. It adds a layer of nodes for each number of members up to
// top. If more than top members are allowed, edges in the last layer lead back to that layer.
func (m *members) grow(first grammar.Node, minimum, top int) {
	n := len(m.listed)
	kinds := len(m.rest.kinds)
	// At the node name[i], one of the names from index i on may come next. At the node values[i], the value
	// of the name with index i comes next. Unlisted names are divided into kinds, and their values have one
	// index for each kind, from n on.
	name := []grammar.Node{first}
	for count := 0; count != m.o.max && m.err == nil; count++ {
		last := m.o.max == unlimited && count >= top
		values := m.nodes(n + kinds)
		for i, at := range name {
			m.names(at, i, values)
		}
		next := m.nodes(n + 1)
		after := m.nodes(n + 1) // after the value of name i-1
		for i := range n {
			m.value(values[i], after[i+1], m.values[i])
		}
		for kind := range kinds {
			m.value(values[n+kind], after[n], m.rest.kinds[kind])
		}
		for i := range after {
			m.read(after[i], next[i], ",")
			if count+1 >= minimum {
				m.close(after[i], i)
			}
		}
		name = next
		if last {
			for i, at := range name {
				m.names(at, i, values)
			}
			return
		}
	}
}

// names adds edges from a node to the values of the names that may come next. These are the listed names from index i
// up to the first required one. If no required name is missing, unlisted names may come too.
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
func (b *builder) otherNames(excluded []string) *grammar.Terminal {
	if len(excluded) == 0 {
		return b.terminal("name", func() (*lexeme.Lexeme, error) { return lexeme.AnyName(), nil })
	}
	return grammar.LazyTerminal(func(func(int32) bool) *lexeme.Lexeme { return b.spaced(lexeme.Others(excluded)) })
}
