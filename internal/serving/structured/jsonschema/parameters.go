package jsonschema

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/grammar"
	"llmmemory/internal/serving/structured/lexeme"
	"llmmemory/internal/serving/structured/regex"
)

// Tags are the texts around the members of an object that is written as parameters between tags, without braces and
// commas: Begin, the name, Between, the value, End and After. The reader of a value ends at the first occurrence of End.
// It drops a line break at the end of the value, and one at its beginning unless Between ends with one.
type Tags struct {
	Begin, Between, End, After string

	NameEnd string // ends a name; a name has neither this text nor space at its ends

	// Strings has the parameters whose values are strings, written without quotes and escapes. If it is true for a
	// parameter, the reader takes the words null and none, in any case and with space around, for null. All other values
	// are JSON, or any text if the schema allows everything. No value contains End.
	Strings map[string]bool
}

// Fixed adds paths to a grammar that read a fixed text, which may contain names of special tokens.
type Fixed interface {
	Read(g *grammar.Grammar, source, target grammar.Node, text string)
	Plain(text string) int // the number of bytes before the first special token
}

// maxParameterName limits names that the schema does not list, in characters.
const maxParameterName = 64

// CompileParameters returns the grammar of the parameters of the objects that a schema allows. Names that the schema does
// not list are used only if it lists none, or if minProperties needs them. For compact and longest see Compile.
func CompileParameters(source []byte, tags *Tags, compact bool, longest int, budget *meter.Meter,
	text Fixed,
) (*grammar.Grammar, error) {
	c, root, err := newCompiler(source, budget)
	if err != nil {
		return nil, err
	}
	p := &parameters{Tags: tags, Fixed: text}
	if err := p.build(budget); err != nil {
		return nil, locate(err, c.doc.root, "schema", "the tags of parameters")
	}
	b := newBuilder(c, compact, longest)
	b.parameters = p
	before := budget.Spent()
	s, err := b.shape(root)
	if err != nil {
		return nil, b.blame(err, before, c.doc.root, "schema", "the arguments")
	}
	b.place = c.doc.root
	end := b.g.Node()
	b.g.Final(end)
	if n := len(s.objects); n > maxAlternatives {
		return nil, refuse(c.doc.root, "schema", "%d alternatives with members are more than %d", n, maxAlternatives)
	}
	for i := range s.objects {
		b.objects(0, end, &s.objects[i], true)
	}
	b.finish()
	return b.g, locate(b.err, c.doc.root, "schema", fmt.Sprintf("%d bytes", len(source)))
}

// parameters is what a builder needs to write parameters between tags.
type parameters struct {
	*Tags
	Fixed

	without form           // texts without Tags.End
	strings form           // the same; they do not begin with a line break if the reader would drop it
	unended form           // texts that do not end with a line break
	unnull  form           // texts that do not mean null
	names   *automaton.DFA // names that a schema does not list
}

// blank are the characters that the reader trims, for a class of a regular expression.
const blank = "\t-\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"

func (p *parameters) build(budget *meter.Meter) error {
	free, err := automaton.Free(nil, []string{p.End}, budget)
	if err != nil {
		return err
	}
	p.without = form{free.Untagged(), "without " + p.End}
	p.strings = p.without
	for _, one := range []struct {
		target  **automaton.DFA
		pattern string
	}{
		{&p.unended.DFA, `(?:[\s\S]*[^\n])?`},
		{&p.unnull.DFA, `[` + blank + `]*(?:[nN][uU][lL][lL]|[nN][oO][nN][eE])[` + blank + `]*`},
		{&p.names, fmt.Sprintf(`[A-Za-z0-9_-]{1,%d}`, maxParameterName)},
	} {
		if *one.target, err = regex.Full(one.pattern, budget); err != nil {
			return err
		}
	}
	p.unended.name, p.unnull.name = "no line break at the end", "not null"
	if p.unnull.DFA, err = automaton.Subtract(automaton.All(), p.unnull.DFA, budget); err != nil {
		return err
	}
	if !strings.HasSuffix(p.Between, "\n") {
		unbroken, err := regex.Full(`(?:[^\n][\s\S]*)?`, budget)
		if err != nil {
			return err
		}
		p.strings.name += ", no line break at the beginning"
		p.strings.DFA, err = automaton.Intersect(p.without.DFA, unbroken, budget)
		return err
	}
	return nil
}

// CanName reports whether the reader of parameters reads a name as it is.
func (t *Tags) CanName(name string) bool {
	return name != "" && len(name) <= maxName && strings.TrimSpace(name) == name && !strings.Contains(name, t.NameEnd) && !strings.Contains(name, "\n")
}

// maxName is the largest number of bytes of a parameter's name.
const maxName = 256

// omitNames removes the listed names that cannot be written. It returns an error if one of them is required.
func (m *members) omitNames() error {
	for _, i := range m.required {
		if !m.parameters.CanName(m.listed[i]) {
			return refuse(m.place, "required", "%.100q cannot be the name of a parameter in calls of this model", m.listed[i])
		}
	}
	for i, name := range m.listed {
		if !m.parameters.CanName(name) {
			m.values[i] = m.conjunctionOf(nothing)
		}
	}
	return nil
}

// onlyListed reports whether parameters have listed names only.
func (m *members) onlyListed() bool { return len(m.listed) > 0 && m.o.min <= len(m.listed) }

// parameterNames is like names. It adds one path for each listed name, which leads to the next one too unless the
// name is required. The nodes of these paths are shared by all sources.
func (m *members) parameterNames(source grammar.Node, i int, valueNodes []grammar.Node) {
	n := len(m.listed)
	if m.skips == nil {
		m.skips = m.nodes(n + 1)
		for j, name := range m.listed {
			if !isNothing(m.values[j]) {
				m.parameters.Read(m.g, m.skips[j], valueNodes[j], m.parameters.Begin+name+m.parameters.Between)
			}
			if m.nextRequired(j) != j {
				m.g.Jump(m.skips[j], m.skips[j+1])
			}
		}
		if !m.unlistedNames.plain && !m.unlistedNames.dfa.Empty() {
			named, name := m.nodes(len(m.unlistedNames.kinds)), m.g.Node()
			m.parameters.Read(m.g, m.skips[n], name, m.parameters.Begin)
			m.g.Read(name, grammar.LazyTerminal(func(alive func(int32) bool) *lexeme.Lexeme {
				return lexeme.Text("", m.unlistedNames.only(alive), lexeme.Raw, false)
			}), named...)
			for kind, node := range named {
				m.parameters.Read(m.g, node, valueNodes[n+kind], m.parameters.Between)
			}
		}
	}
	m.g.Jump(source, m.skips[i])
}

// valueOf adds edges between two nodes for the value of a member. Of a parameter, they also read the end. The name is
// "" if it is not listed.
func (m *members) valueOf(name string, source, target grammar.Node, all conjunction) {
	if m.tagged {
		m.parameter(source, target, name, all)
		return
	}
	m.value(source, target, all)
}

// parameter adds edges between two nodes for the value of a parameter, a line break that may follow it, and the end. A
// string that ends with a line break must have it, because the reader drops one.
func (b *builder) parameter(source, target grammar.Node, name string, all conjunction) {
	p := b.parameters
	value, ended := b.g.Node(), b.g.Node()
	p.Read(b.g, value, ended, p.End)
	p.Read(b.g, value, ended, "\n"+p.End)
	p.Read(b.g, ended, target, p.After)
	s, err := b.shape(all)
	if !b.ok(err) {
		return
	}
	nullable, text := p.Strings[name]
	switch {
	case !text && s.free(), text && (!nullable || s.hasNull) && slices.ContainsFunc(s.strings, strings_.free):
		b.rawText(source, ended, &strings_{limits: anyNumber}, false, p.without)
	case !text:
		b.value(source, value, all)
	default:
		if nullable && s.hasNull {
			b.read(source, value, "null")
		}
		for i := range s.strings {
			forms := []form{p.strings}
			if nullable {
				forms = append(forms, p.unnull)
			}
			b.rawText(source, ended, &s.strings[i], true, forms...)
			b.rawText(source, ended, &s.strings[i], false, append(forms, p.unended)...)
		}
	}
}

// free reports whether the shape allows every value.
func (s *shape) free() bool {
	return s.hasNull && s.hasFalse && s.hasTrue && slices.ContainsFunc(s.numbers, numbers.free) && slices.ContainsFunc(s.strings, strings_.free) &&
		slices.ContainsFunc(s.arrays, arrays.free) && slices.ContainsFunc(s.objects, objects.free)
}

// rawText adds an edge that reads those strings of an alternative that have the given forms, without quotes and escapes,
// and then Tags.End, after a line break if broken is set. What follows a string up to a special token is read by the
// lexeme of the string: otherwise, almost each token could end it, and masks would need much work.
func (b *builder) rawText(source, target grammar.Node, s *strings_, broken bool, forms ...form) {
	tail := b.parameters.End
	if broken {
		tail = "\n" + tail
	}
	all, possible, err := s.intersect(strings_{limits: anyNumber, dfas: forms}, b.budget)
	if !b.ok(err) || !possible {
		return
	}
	plain := b.parameters.Plain(tail)
	end := int32(lexeme.None)
	if plain < len(tail) {
		end = 0
	}
	key := ""
	if !all.listed && all.key() != "" {
		key = fmt.Sprintf("raw %s before %q of %q", all.key(), tail[:plain], tail)
	}
	t, known := b.terminals[key]
	if !known {
		d, err := all.before(tail[:plain], b.budget)
		if !b.ok(err) || d.Empty() {
			return
		}
		t = grammar.NewTerminal(lexeme.RawText(key, d, end, b.longest))
		if key != "" {
			b.terminals[key] = t
		}
	}
	next := b.g.Node()
	b.g.Read(source, t, next)
	b.parameters.Read(b.g, next, target, tail[plain:])
}

// before returns the texts that consist of a string of s and a tail.
func (s *strings_) before(tail string, budget *meter.Meter) (texts, error) {
	d, err := s.form(budget)
	if err != nil || d.Empty() {
		return d, err
	}
	text := automaton.NewBuilder(budget)
	start, middle, end := text.State(), text.State(), text.State()
	text.Embed(d, start, middle)
	text.Literal(middle, tail, end)
	text.Accept(end, 0)
	whole, err := text.Build()
	if err != nil {
		return nil, err
	}
	longer := strings_{limits: s.limits, dfas: []form{{whole, ""}}}
	if !s.any() {
		length := utf8.RuneCountInString(tail)
		longer.min += length
		if s.max != unlimited {
			longer.max += length
		}
	}
	return longer.texts(budget)
}
