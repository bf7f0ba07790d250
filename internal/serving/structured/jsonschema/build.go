package jsonschema

import (
	"fmt"
	"slices"

	"llmmemory/internal/serving/structured/grammar"
	"llmmemory/internal/serving/structured/lexeme"
)

const (
	maxContains = 4         // schemas of contains that apply to one array
	maxCount    = 20000     // counted elements or members
	maxLength   = 1_000_000 // characters that a string must have
)

// unsupportedLimit returns the error for a number n that is larger than supported. The error names the keyword that set
// n as the upper or the lower limit. If no keyword did, because a list is long, it names the given keyword of b.place.
func (b *builder) unsupportedLimit(l limits, keyword string, n, supported int) error {
	by := origin{schema: b.place, keyword: keyword}
	if n == l.max && l.maxOf.schema != nil {
		by = l.maxOf
	} else if n == l.min && l.minOf.schema != nil {
		by = l.minOf
	}
	return by.refuse(n, fmt.Sprintf("%d is above %d, the largest supported value here", n, supported))
}

// arrays adds edges that lead from source to target and read the arrays that a allows. A node before or after an
// element stands for two facts: how many elements have been read, and which of the schemas in a.contains these elements
// satisfy. If the number of elements is not limited, the nodes for the largest number stand for all larger numbers too,
// because all further elements have the same schemas.
func (b *builder) arrays(source, target grammar.Node, a *arrays) {
	last := max(a.prefix(), a.min)
	if a.max != unlimited {
		last = a.max
	}
	switch {
	case a.unique && a.max != 0 && a.max != 1:
		b.ok(refuse(a.source, "uniqueItems", "the keyword is not supported where maxItems is above 1"))
		return
	case len(a.contains) > maxContains:
		b.ok(refuse(a.contains[0][0].schema, "contains", "%d schemas of contains for one array are more than %d", len(a.contains), maxContains))
		return
	case last > maxCount:
		b.ok(b.unsupportedLimit(a.limits, "prefixItems", last, maxCount))
		return
	}
	all := 1<<len(a.contains) - 1
	// An element begins at a node of elementStart and ends at a node of elementEnd. A node's index in these slices is a
	// set of bits. If bit j is set, one of the elements so far satisfies the schema a.contains[j].
	elementStart, elementEnd := b.nodes(all+1), b.nodes(all+1)
	first := b.g.Node() // not elementStart[0], to which a comma may lead
	b.read(source, first, "[")
	b.g.Jump(first, elementStart[0])
	if a.min == 0 && all == 0 {
		b.read(first, target, "]")
	}
	for i := 0; i != a.max && b.small(); i++ {
		b.elements(a, i, elementStart, elementEnd)
		if i+1 >= a.min {
			b.read(elementEnd[all], target, "]")
		}
		next, repeats := elementStart, a.max == unlimited && i >= last // all elements from here on are the same
		if !repeats {
			next = b.nodes(all + 1)
		}
		for satisfied := range elementEnd {
			b.read(elementEnd[satisfied], next[satisfied], ",")
		}
		if repeats {
			return
		}
		elementStart, elementEnd = next, b.nodes(all+1)
	}
}

func (b *builder) nodes(n int) []grammar.Node {
	out := make([]grammar.Node, n)
	for i := range out {
		out[i] = b.g.Node()
	}
	return out
}

// elements adds the edges that read element i. They lead from the nodes in starts to the nodes in ends. A node's index
// in these slices is a set of bits: if bit j is set, one of the elements so far satisfies a.contains[j].
//
// From each node in starts, edges lead to the node in ends with the same index. For each bit j that is not set, other
// edges read an element that satisfies a.contains[j]. They lead to the node in ends whose index has bit j too.
func (b *builder) elements(a *arrays, i int, starts, ends []grammar.Node) {
	item := b.element(a, i)
	for satisfied := range starts {
		b.value(starts[satisfied], ends[satisfied], item)
		for j, contained := range a.contains {
			if satisfied>>j&1 == 0 {
				b.value(starts[satisfied], ends[satisfied|1<<j], b.merge(item, contained))
			}
		}
	}
}

// members is an object under construction.
type members struct {
	*builder
	o             *objects
	listed        []string
	values        []conjunction
	required      []int // places of required names among listed, ascending
	unlistedNames unlisted
	others        *grammar.Terminal // reads unlisted names, if unlistedNames.plain is set
	end           grammar.Node
	chunks        map[int]grammar.Node // see listedNames; of one layer of nodes
	tagged        bool                 // the members are written as parameters
	skips         []grammar.Node       // see parameterNames; of one layer of nodes
}

// objects adds edges between two nodes for the objects of an alternative. With tagged, they are written as parameters.
func (b *builder) objects(source, target grammar.Node, o *objects, tagged bool) {
	if b.parameters != nil && !tagged {
		inner := *o
		inner.names = append(slices.Clone(o.names), b.parameters.without.DFA)
		o = &inner
	}
	m := &members{builder: b, o: o, listed: o.listed(), end: target, tagged: tagged}
	required := make(map[string]bool, len(o.required))
	for _, name := range o.required {
		required[name] = true
	}
	full := o.max == len(o.required) // only required members are possible
	if full {
		m.listed = slices.DeleteFunc(slices.Clone(m.listed), func(name string) bool { return !required[name] })
	}
	if !b.ok(b.checkNames(o, len(m.listed))) {
		return
	}
	for i, name := range m.listed {
		m.values = append(m.values, b.member(o, name))
		if required[name] {
			m.required = append(m.required, i)
		}
	}
	if tagged && !b.ok(m.omitNames()) {
		return
	}
	if !b.ok(m.findUnlisted(full)) {
		return
	}
	if m.unlistedNames.plain {
		m.others = b.otherNames(slices.Concat(m.listed, o.absent))
	}
	if o.max >= len(m.listed) && !m.unlistedNames.exist() { // the upper limit makes no difference
		unbounded := *o
		unbounded.max = unlimited
		m.o = &unbounded
	}
	m.all(source)
}

// findUnlisted finds which unlisted names the members may have. There are none if the object is full, that is if only
// required members are possible.
func (m *members) findUnlisted(full bool) (err error) {
	switch {
	case full, m.tagged && m.onlyListed():
		m.unlistedNames = unlisted{plain: true, kinds: []conjunction{m.conjunctionOf(nothing)}}
	case m.tagged:
		named := *m.o
		named.names = append(slices.Clone(m.o.names), m.parameters.names)
		m.unlistedNames, err = m.unlisted(&named, m.listed)
	default:
		m.unlistedNames, err = m.unlisted(m.o, m.listed)
	}
	return err
}

// mark adds an edge that reads a brace or a comma, which parameters do not have.
func (m *members) mark(source, target grammar.Node, text string) {
	if m.tagged {
		m.g.Jump(source, target)
		return
	}
	m.read(source, target, text)
}

// all adds the edges that read the objects.
func (m *members) all(source grammar.Node) {
	o := m.o
	minimum := o.min
	if minimum <= len(o.required) {
		minimum = 0 // the required ones are enough
	}
	top := minimum // counts from here on make no difference
	if o.max != unlimited {
		top = o.max
	}
	if largest := maxCount/(len(m.listed)+2) - 1; top > largest {
		m.ok(m.unsupportedLimit(o.limits, "properties", top, largest))
		return
	}
	// Unlisted names can be equal, and JSON parsers keep only one of several members with the same name. So
	// at most one unlisted member counts for minProperties.
	if o.min > len(m.required)+1 && m.unlistedNames.exist() {
		m.ok(o.minOf.refuse(o.min, "only one more than the required members is supported where other names than those of properties are possible"))
		return
	}
	first := m.g.Node()
	m.mark(source, first, "{")
	if minimum == 0 {
		m.close(first, 0)
	}
	m.grow(first, minimum, top)
}

// checkNames returns an error if an alternative of objects lists too many names: each needs a node.
func (b *builder) checkNames(o *objects, listed int) error {
	if listed+2 <= maxCount {
		return nil
	}
	keyword := "properties"
	if 2*len(o.required) > listed {
		keyword = "required"
	}
	return refuse(b.place, keyword, "%d names in one place are more than %d, the largest supported number", listed, maxCount-2)
}

// close adds an edge that reads "}" and leads to m.end. It adds no edge if a required name at index i or after it is
// missing.
func (m *members) close(source grammar.Node, i int) {
	if m.nextRequired(i) == len(m.listed) {
		m.mark(source, m.end, "}")
	}
}

// nextRequired returns the index of the first required name at i or after it, or the number of names if there
// is none.
func (m *members) nextRequired(i int) int {
	index, _ := slices.BinarySearch(m.required, i)
	if index == len(m.required) {
		return len(m.listed)
	}
	return m.required[index]
}

// grow adds the nodes and edges of the members. It adds a layer of nodes for each number of members up to
// top. If more than top members are allowed, edges in the last layer lead back to that layer.
func (m *members) grow(first grammar.Node, minimum, top int) {
	n := len(m.listed)
	kinds := len(m.unlistedNames.kinds)
	// At nameNodes[i], a listed name from index i on or an unlisted name may come next (see names). At valueNodes[i],
	// the value of the listed name i comes next. At valueNodes[n+k], the value of an unlisted name of kind k comes
	// next.
	nameNodes := []grammar.Node{first}
	for count := 0; count != m.o.max && m.small(); count++ {
		last := m.o.max == unlimited && count >= top
		valueNodes := m.nodes(n + kinds)
		m.chunks, m.skips = map[int]grammar.Node{}, nil
		for i, node := range nameNodes {
			m.names(node, i, valueNodes)
		}
		next := m.nodes(n + 1)
		afterValue := m.nodes(n + 1) // at afterValue[i], the value of name i-1 has ended
		for i := range n {
			m.valueOf(m.listed[i], valueNodes[i], afterValue[i+1], m.values[i])
		}
		for kind := range kinds {
			m.valueOf("", valueNodes[n+kind], afterValue[n], m.unlistedNames.kinds[kind])
		}
		for i := range afterValue {
			m.mark(afterValue[i], next[i], ",")
			if count+1 >= minimum {
				m.close(afterValue[i], i)
			}
		}
		nameNodes = next
		if last {
			for i, node := range nameNodes {
				m.names(node, i, valueNodes)
			}
			return
		}
	}
}

// names adds edges that read the names that may come next at source. The edge of a name leads to the node in valueNodes
// for the value of that name. The names are the listed ones from index i up to the first required one, which is
// included. If no required name is missing, unlisted names may come too.
func (m *members) names(source grammar.Node, i int, valueNodes []grammar.Node) {
	if m.tagged {
		m.parameterNames(source, i, valueNodes)
		return
	}
	n := len(m.listed)
	stop := min(m.nextRequired(i)+1, n)
	others := m.nextRequired(i) == n
	m.listedNames(source, i, stop, valueNodes)
	if others && m.unlistedNames.plain {
		m.g.Read(source, m.others, valueNodes[n])
		return
	}
	if others && !m.unlistedNames.dfa.Empty() {
		t := grammar.LazyTerminal(func(alive func(int32) bool) *lexeme.Lexeme {
			return m.spaced(lexeme.Name("", m.unlistedNames.only(alive)))
		})
		m.g.Read(source, t, valueNodes[n:]...)
	}
}

// namesInChunk is the largest number of listed names that one lexeme reads.
const namesInChunk = 256

// listedNames adds edges that read one of the listed names from index i up to stop, which is excluded. If these names
// are more than a chunk, an edge reads those up to the end of the chunk that has i, and another one leads to a node for
// the rest. That node is shared by all i, so that the work is not the square of the number of names.
func (m *members) listedNames(source grammar.Node, i, stop int, valueNodes []grammar.Node) {
	if i >= stop {
		return
	}
	end := stop
	if stop-i > namesInChunk {
		end = (i/namesInChunk + 1) * namesInChunk
		rest, ok := m.chunks[end]
		if !ok {
			rest = m.g.Node()
			m.chunks[end] = rest
			m.listedNames(rest, end, stop, valueNodes)
		}
		m.g.Jump(source, rest)
	}
	if !m.ok(m.budget.Spend(1 + (end-i)/copyWork)) {
		return
	}
	t := grammar.LazyTerminal(func(alive func(int32) bool) *lexeme.Lexeme {
		var names []string
		var tags []int32
		for j := i; j < end; j++ {
			if alive(int32(j - i)) {
				names, tags = append(names, m.listed[j]), append(tags, int32(j-i))
			}
		}
		return m.spaced(lexeme.Names(names, tags))
	})
	m.g.Read(source, t, valueNodes[i:end]...)
}

// otherNames returns the lexeme of the names that are not excluded.
func (b *builder) otherNames(excluded []string) *grammar.Terminal {
	if len(excluded) == 0 {
		return b.terminal("name", func() (*lexeme.Lexeme, error) { return lexeme.AnyName(), nil })
	}
	return grammar.LazyTerminal(func(func(int32) bool) *lexeme.Lexeme { return b.spaced(lexeme.Others(excluded)) })
}
