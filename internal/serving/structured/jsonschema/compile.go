package jsonschema

import (
	"fmt"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/grammar"
	"llmmemory/internal/serving/structured/lexeme"
)

// Compile returns the grammar of the JSON texts that a schema allows. The parameter longest is the number of
// bytes of the longest token. If compact is set, the only white space in a text is a space after each comma
// and colon, as Python's json.dumps writes it.
func Compile(source []byte, compact bool, longest int, budget *meter.Meter) (*grammar.Grammar, error) {
	c, root, err := newCompiler(source, budget)
	if err != nil {
		return nil, err
	}
	g, err := c.build(root, compact, longest)
	return g, locate(err, c.doc.root, "schema", fmt.Sprintf("%d bytes", len(source)))
}

// newCompiler reads a schema. It returns a compiler for it, and the conjunction of the whole schema.
func newCompiler(source []byte, budget *meter.Meter) (*compiler, conjunction, error) {
	root, err := read(source, budget)
	if err != nil {
		return nil, nil, err
	}
	doc, err := newDocument(root, budget)
	if err != nil {
		return nil, nil, locate(err, root, "$id", "long identifiers in one another")
	}
	return &compiler{doc: doc, budget: budget, ids: map[*value]int32{}, shapes: map[term]*shape{}, joint: map[string]*shape{},
		open: map[term]bool{}, probed: map[string]bool{}, dfas: map[string]*automaton.DFA{}}, conjunction{{schema: root}}, nil
}

// builder makes the rules of a grammar.
type builder struct {
	*compiler
	g         *grammar.Grammar
	compact   bool
	longest   int
	terminals map[string]*grammar.Terminal
	scalarsOf map[any]*grammar.Terminal // by the identity of an alternative of numbers or strings
	rules     map[string]rule
	work      []rule
	place     *value // a schema of the values under construction
	charged   int    // the nodes and edges for which the meter is charged
	err       error  // the first one

	parameters *parameters // of the outermost objects; nil if they are written as JSON
}

// ok keeps the first error. It reports whether there is none.
func (b *builder) ok(err error) bool {
	if b.err == nil {
		b.err = err
	}
	return b.err == nil
}

// rule is the values of a conjunction with arrays or objects.
type rule struct {
	start, end grammar.Node
	shape      *shape
	place      *value // a schema of the conjunction
}

const (
	maxNodes = 400_000 // nodes and edges of a grammar
	// maxAlternatives is the largest number of alternatives with elements or members in one place. An answer is compared
	// with all of them at once.
	maxAlternatives = 1000

	nodesWork = 4 // nodes and edges that are made at the cost of one unit of work
)

func (c *compiler) build(root conjunction, compact bool, longest int) (*grammar.Grammar, error) {
	b := newBuilder(c, compact, longest)
	end := b.g.Node()
	b.g.Final(end)
	b.value(0, end, root)
	b.finish()
	return b.g, b.err
}

func newBuilder(c *compiler, compact bool, longest int) *builder {
	return &builder{compiler: c, g: grammar.New(), compact: compact, longest: longest, terminals: map[string]*grammar.Terminal{},
		scalarsOf: map[any]*grammar.Terminal{}, rules: map[string]rule{}, place: &value{kind: object}}
}

// finish makes the rules that are called.
func (b *builder) finish() {
	for len(b.work) > 0 && b.err == nil {
		r := b.work[len(b.work)-1]
		b.work = b.work[:len(b.work)-1]
		b.rule(r)
	}
}

// small charges the meter for the new nodes and edges of the grammar. It reports whether there is no error, and the
// grammar is not too large.
func (b *builder) small() bool {
	size := b.g.Size()
	if size > maxNodes {
		b.ok(refuse(b.place, "schema", "the grammar of the whole schema has more than %d nodes and edges", maxNodes))
	}
	b.ok(b.budget.Spend((size - b.charged) / nodesWork))
	b.charged = size
	return b.err == nil
}

// value adds edges between two nodes for the values that a conjunction allows.
func (b *builder) value(source, target grammar.Node, all conjunction) {
	before := b.budget.Spent()
	s, err := b.shape(all)
	if len(all) > 0 {
		err = b.blame(err, before, all[0].schema, "schema", fmt.Sprintf("%d schemas for one value", len(all)))
	}
	if !b.ok(err) {
		return
	}
	if s.scalar() {
		b.scalars(source, target, s)
		return
	}
	key, err := b.key(all)
	if !b.ok(err) {
		return
	}
	r, ok := b.rules[key]
	if !ok {
		r = rule{b.g.Node(), b.g.Node(), s, b.place}
		if len(all) > 0 {
			r.place = all[0].schema
		}
		b.g.Final(r.end)
		b.rules[key] = r
		b.work = append(b.work, r)
	}
	b.g.Call(source, r.start, target)
}

func (b *builder) rule(r rule) {
	b.place = r.place
	before, s := b.budget.Spent(), r.shape
	if n := len(s.arrays) + len(s.objects); n > maxAlternatives {
		b.ok(refuse(r.place, "schema", "%d alternatives with members or elements are more than %d", n, maxAlternatives))
		return
	}
	b.scalars(r.start, r.end, s)
	for i := 0; i < len(r.shape.arrays) && b.small(); i++ {
		b.arrays(r.start, r.end, &r.shape.arrays[i])
	}
	for i := 0; i < len(r.shape.objects) && b.small(); i++ {
		b.objects(r.start, r.end, &r.shape.objects[i], false)
	}
	if !b.small() {
		b.err = b.blame(b.err, before, r.place, "schema", b.size(s))
	}
}

// size says how many alternatives a shape has, and how many names they list.
func (b *builder) size(s *shape) string {
	names := 0
	for i := range s.objects {
		names += len(s.objects[i].listed())
	}
	return fmt.Sprintf("%d alternatives with members or elements, and %d names", len(s.arrays)+len(s.objects), names)
}

// terminal returns the terminal that an earlier call made for the same key, or else a new one. The function
// make makes its lexeme, or returns nil if no text is possible. With an empty key, terminal always makes a
// new one.
func (b *builder) terminal(key string, make func() (*lexeme.Lexeme, error)) *grammar.Terminal {
	if t, ok := b.terminals[key]; ok && key != "" {
		return t
	}
	l, err := make()
	if !b.ok(err) || l == nil {
		return nil
	}
	t := grammar.NewTerminal(b.spaced(l))
	if key != "" {
		b.terminals[key] = t
	}
	return t
}

// spaced makes l, which is new, compact if the texts are.
func (b *builder) spaced(l *lexeme.Lexeme) *lexeme.Lexeme {
	if b.compact {
		return l.Compact()
	}
	return l
}

// read adds an edge that reads a fixed text.
func (b *builder) read(source, target grammar.Node, text string) {
	if text == "," && b.compact {
		text = ", "
	}
	t := b.lexeme("word "+text, func() (texts, error) { return automaton.Texts([]string{text}, b.budget) }, lexeme.Raw)
	if t != nil {
		b.g.Read(source, t, target)
	}
}

// scalars adds edges between two nodes for the nulls, booleans, numbers and strings of a shape.
func (b *builder) scalars(source, target grammar.Node, s *shape) {
	for _, word := range []struct {
		allowed bool
		text    string
	}{{s.hasNull, "null"}, {s.hasFalse, "false"}, {s.hasTrue, "true"}} {
		if word.allowed {
			b.read(source, target, word.text)
		}
	}
	for i := range s.numbers {
		n := &s.numbers[i]
		b.alternative(source, target, n.identity(), func() *grammar.Terminal {
			return b.lexeme(n.key(), func() (texts, error) { return n.automaton(b.budget) }, lexeme.Raw)
		})
	}
	for i := range s.strings {
		text := &s.strings[i]
		b.alternative(source, target, text.identity(), func() *grammar.Terminal { return b.text(text) })
	}
}

// identity returns a value that tells an alternative from others without reading its list. Shapes that are intersected
// with everything share their lists.
func (n *numbers) identity() any {
	if len(n.list) == 0 {
		return n
	}
	return [...]any{&n.list[0], len(n.list), n.whole}
}

// identity is like that of numbers.
func (s *strings_) identity() any {
	if len(s.list) == 0 {
		return s
	}
	return [...]any{&s.list[0], len(s.list)}
}

// alternative adds an edge between two nodes for an alternative of numbers or strings, which is part of a shape and has
// the given identity. The function make makes its terminal, or returns nil if no text is possible. It is called once for
// each identity.
func (b *builder) alternative(source, target grammar.Node, identity any, make func() *grammar.Terminal) {
	t, ok := b.scalarsOf[identity]
	if !ok {
		t = make()
		b.scalarsOf[identity] = t
	}
	if t != nil {
		b.g.Read(source, t, target)
	}
}

// key returns a name that only equal alternatives have.
func (n *numbers) key() string {
	key := []byte("number")
	if n.whole {
		key = append(key, " whole"...)
	}
	if n.broken {
		key = append(key, " broken"...)
	}
	for _, l := range n.limits {
		key = fmt.Appendf(key, " %d %s", l.relation, l.bound)
	}
	for _, m := range n.multiples {
		key = fmt.Appendf(key, " %t %s", m.negated, m.step)
	}
	for _, c := range n.list {
		key = fmt.Appendf(key, " %q", c.text)
	}
	return string(key)
}

// key returns a text that identifies an alternative of strings: equal texts mean equal alternatives. It
// returns "" if one of the automata has no name.
func (s *strings_) key() string {
	key := fmt.Appendf(nil, "text %d %d", s.min, s.max)
	for _, d := range s.dfas {
		if d.name == "" {
			return ""
		}
		key = fmt.Appendf(key, " %q", d.name)
	}
	return string(key)
}

// lexeme returns the terminal that reads the texts of the automaton from the function make, or nil if there are none.
func (b *builder) lexeme(key string, make func() (texts, error), form lexeme.Form) *grammar.Terminal {
	return b.terminal(key, func() (*lexeme.Lexeme, error) {
		d, err := make()
		if err != nil || d.Empty() {
			return nil, err
		}
		return lexeme.Text(key, d, form, true), nil
	})
}

// text returns the terminal that reads the strings of an alternative, or nil if there are none.
func (b *builder) text(s *strings_) *grammar.Terminal {
	if p := b.parameters; p != nil {
		one, possible, err := s.intersect(strings_{limits: anyNumber, dfas: []form{p.without}}, b.budget)
		if !b.ok(err) || !possible {
			return nil
		}
		s = &one
	}
	switch {
	case len(s.dfas) > 0:
		return b.terminal(s.key(), func() (*lexeme.Lexeme, error) {
			d, err := s.texts(b.budget)
			if err != nil || d.Empty() {
				return nil, err
			}
			if limited, ok := d.(*automaton.Limited); ok {
				return lexeme.LimitedText(s.key(), limited, b.longest), nil
			}
			return lexeme.Text(s.key(), d, lexeme.Quoted, true), nil
		})
	case s.listed:
		return b.terminal("", func() (*lexeme.Lexeme, error) {
			for _, text := range s.list {
				if err := b.budget.Spend(1 + len(text)/textWork); err != nil {
					return nil, err
				}
			}
			return lexeme.Strings(s.list), nil
		})
	case s.min > maxLength:
		b.ok(b.unsupportedLimit(s.limits, "minLength", s.min, maxLength))
		return nil
	}
	return b.terminal(fmt.Sprintf("length %d %d", s.min, s.max), func() (*lexeme.Lexeme, error) {
		return lexeme.Length(s.min, s.max, b.longest), nil
	})
}
