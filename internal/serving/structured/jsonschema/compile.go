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
	root, err := read(source)
	if err != nil {
		return nil, err
	}
	return newCompiler(root, budget).build(conjunction{{schema: root}}, compact, longest)
}

func newCompiler(root *value, budget *meter.Meter) *compiler {
	return &compiler{doc: newDocument(root), budget: budget, ids: map[*value]int32{}, shapes: map[term]*shape{}, joint: map[string]*shape{},
		open: map[term]bool{}, probed: map[string]bool{}, dfas: map[string]*automaton.DFA{}}
}

// builder makes the rules of a grammar.
type builder struct {
	*compiler
	g         *grammar.Grammar
	compact   bool
	longest   int
	terminals map[string]*grammar.Terminal
	rules     map[string]rule
	work      []rule
	err       error // the first one
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
}

// maxNodes limits the size of a grammar.
const maxNodes = 400_000

func (c *compiler) build(root conjunction, compact bool, longest int) (*grammar.Grammar, error) {
	b := &builder{compiler: c, g: grammar.New(), compact: compact, longest: longest, terminals: map[string]*grammar.Terminal{}, rules: map[string]rule{}}
	end := b.g.Node()
	b.g.Final(end)
	b.value(0, end, root)
	for len(b.work) > 0 && b.err == nil {
		r := b.work[len(b.work)-1]
		b.work = b.work[:len(b.work)-1]
		b.rule(r)
		if b.g.Size() > maxNodes {
			b.ok(fmt.Errorf("the grammar of the schema has more than %d nodes and edges", maxNodes))
		}
	}
	return b.g, b.err
}

// value adds edges between two nodes for the values that a conjunction allows.
func (b *builder) value(source, target grammar.Node, all conjunction) {
	s, err := b.shape(all)
	if !b.ok(err) {
		return
	}
	if s.scalar() {
		b.scalars(source, target, s)
		return
	}
	key := b.key(all)
	r, ok := b.rules[key]
	if !ok {
		r = rule{b.g.Node(), b.g.Node(), s}
		b.g.Final(r.end)
		b.rules[key] = r
		b.work = append(b.work, r)
	}
	b.g.Call(source, r.start, target)
}

func (b *builder) rule(r rule) {
	b.scalars(r.start, r.end, r.shape)
	for i := range r.shape.arrays {
		b.arrays(r.start, r.end, &r.shape.arrays[i])
	}
	for i := range r.shape.objects {
		b.objects(r.start, r.end, &r.shape.objects[i])
	}
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
	b.lexeme(source, target, "word "+text, func() (texts, error) { return automaton.Texts([]string{text}, b.budget) }, lexeme.Raw)
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
		b.lexeme(source, target, n.key(), func() (texts, error) { return n.automaton(b.budget) }, lexeme.Raw)
	}
	for i := range s.strings {
		b.text(source, target, &s.strings[i])
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
	for _, r := range n.list {
		key = fmt.Appendf(key, " %s %q", r.Rat, r.text)
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

// lexeme adds an edge between two nodes. The edge reads the texts of the automaton from the function make. If there
// are no texts, lexeme adds no edge.
func (b *builder) lexeme(source, target grammar.Node, key string, make func() (texts, error), form lexeme.Form) {
	t := b.terminal(key, func() (*lexeme.Lexeme, error) {
		d, err := make()
		if err != nil || d.Empty() {
			return nil, err
		}
		return lexeme.Text(key, d, form, true), nil
	})
	if t != nil {
		b.g.Read(source, t, target)
	}
}

func (b *builder) text(source, target grammar.Node, s *strings_) {
	if len(s.dfas) > 0 {
		b.lexeme(source, target, s.key(), func() (texts, error) { return s.texts(b.budget) }, lexeme.Quoted)
		return
	}
	if s.min > maxLength {
		b.ok(unsupportedLimit(s.limits, "minLength", "maxLength", s.min, maxLength))
		return
	}
	key := fmt.Sprintf("length %d %d", s.min, s.max)
	if s.listed {
		key = ""
	}
	t := b.terminal(key, func() (*lexeme.Lexeme, error) {
		if s.listed {
			return lexeme.Strings(s.list), nil
		}
		return lexeme.Length(s.min, s.max, b.longest), nil
	})
	if t != nil {
		b.g.Read(source, t, target)
	}
}
