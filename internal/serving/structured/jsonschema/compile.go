package jsonschema

import (
	"fmt"

	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/grammar"
	"llmmemory/internal/serving/structured/lexeme"
)

// Compile returns the grammar of the JSON texts that a schema allows. The parameter longest is the number of
// bytes of the longest token. If compact is set, the only white space in a text is a space after each comma
// and colon, as Python's json.dumps writes it.
func Compile(source []byte, compact bool, longest int, budget *automaton.Budget) (*grammar.Grammar, error) {
	root, err := read(source)
	if err != nil {
		return nil, err
	}
	return newCompiler(root, budget).build(conjunction{{schema: root}}, compact, longest)
}

func newCompiler(root *value, budget *automaton.Budget) *compiler {
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
	if err := b.value(0, end, root); err != nil {
		return nil, err
	}
	for len(b.work) > 0 {
		r := b.work[len(b.work)-1]
		b.work = b.work[:len(b.work)-1]
		if err := b.rule(r); err != nil {
			return nil, err
		}
		if b.g.Size() > maxNodes {
			return nil, fmt.Errorf("the grammar of the schema has more than %d nodes and edges", maxNodes)
		}
	}
	return b.g, nil
}

// value adds edges between two nodes for the values that a conjunction allows.
func (b *builder) value(from, to grammar.Node, all conjunction) error {
	s, err := b.shape(all)
	if err != nil {
		return err
	}
	if s.scalar() {
		return b.scalars(from, to, s)
	}
	key := b.key(all)
	r, ok := b.rules[key]
	if !ok {
		r = rule{b.g.Node(), b.g.Node(), s}
		b.g.Final(r.end)
		b.rules[key] = r
		b.work = append(b.work, r)
	}
	b.g.Call(from, r.start, to)
	return nil
}

func (b *builder) rule(r rule) error {
	if err := b.scalars(r.start, r.end, r.shape); err != nil {
		return err
	}
	for i := range r.shape.arrays {
		if err := b.arrays(r.start, r.end, &r.shape.arrays[i]); err != nil {
			return err
		}
	}
	for i := range r.shape.objects {
		if err := b.objects(r.start, r.end, &r.shape.objects[i]); err != nil {
			return err
		}
	}
	return nil
}

// word returns the terminal of a fixed text.
func (b *builder) word(text string) (*grammar.Terminal, error) {
	return b.terminal("word "+text, func() (*lexeme.Lexeme, error) {
		d, err := automaton.Texts([]string{text}, b.budget)
		if err != nil {
			return nil, err
		}
		return lexeme.Text("word "+text, d, lexeme.Raw, true), nil
	})
}

// terminal returns the terminal with the given key, made by an earlier call, or a new one. The function make
// makes its lexeme, or returns nil if no text is possible. With an empty key, terminal always makes a new
// one.
func (b *builder) terminal(key string, make func() (*lexeme.Lexeme, error)) (*grammar.Terminal, error) {
	if t, ok := b.terminals[key]; ok && key != "" {
		return t, nil
	}
	l, err := make()
	if err != nil || l == nil {
		return nil, err
	}
	t := grammar.NewTerminal(b.spaced(l))
	if key != "" {
		b.terminals[key] = t
	}
	return t, nil
}

// spaced makes l, which is new, compact if the texts are.
func (b *builder) spaced(l *lexeme.Lexeme) *lexeme.Lexeme {
	if b.compact {
		return l.Compact()
	}
	return l
}

// read adds an edge that reads a fixed text.
func (b *builder) read(from, to grammar.Node, text string) error {
	if text == "," && b.compact {
		text = ", "
	}
	t, err := b.word(text)
	if err == nil {
		b.g.Read(from, t, to)
	}
	return err
}

// scalars adds edges between two nodes for the values of a shape that are neither arrays nor objects.
func (b *builder) scalars(from, to grammar.Node, s *shape) error {
	for _, word := range []struct {
		allowed bool
		text    string
	}{{s.null, "null"}, {s.no, "false"}, {s.yes, "true"}} {
		if word.allowed {
			if err := b.read(from, to, word.text); err != nil {
				return err
			}
		}
	}
	for i := range s.numbers {
		n := &s.numbers[i]
		if err := b.lexeme(from, to, n.key(), func() (texts, error) { return n.automaton(b.budget) }, lexeme.Raw); err != nil {
			return err
		}
	}
	for i := range s.strings {
		if err := b.text(from, to, &s.strings[i]); err != nil {
			return err
		}
	}
	return nil
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

// key returns a name that is the same only for equal alternatives, or "" if there is no such name.
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

// lexeme adds an edge between two nodes that reads the texts of the automaton that the function make returns.
// If there are no texts, it adds no edge.
func (b *builder) lexeme(from, to grammar.Node, key string, make func() (texts, error), form lexeme.Form) error {
	t, err := b.terminal(key, func() (*lexeme.Lexeme, error) {
		d, err := make()
		if err != nil || d.Empty() {
			return nil, err
		}
		return lexeme.Text(key, d, form, true), nil
	})
	if err == nil && t != nil {
		b.g.Read(from, t, to)
	}
	return err
}

func (b *builder) text(from, to grammar.Node, s *strings_) error {
	if len(s.dfas) > 0 {
		return b.lexeme(from, to, s.key(), func() (texts, error) { return s.texts(b.budget) }, lexeme.Quoted)
	}
	if s.min > maxLength {
		return unsupportedLimit(s.limited, "minLength", "maxLength", s.min, maxLength)
	}
	key := fmt.Sprintf("length %d %d", s.min, s.max)
	if s.listed {
		key = ""
	}
	t, err := b.terminal(key, func() (*lexeme.Lexeme, error) {
		if s.listed {
			return lexeme.Strings(s.list), nil
		}
		return lexeme.Length(s.min, s.max, b.longest), nil
	})
	if err == nil {
		b.g.Read(from, t, to)
	}
	return err
}
