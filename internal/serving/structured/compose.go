package structured

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/grammar"
	"llmmemory/internal/serving/structured/lexeme"
)

// builder makes the grammar of a form that has parts. Its methods add paths between two nodes of the grammar.
// Each path reads a text that the form allows.
type builder struct {
	g      *grammar.Grammar
	v      *Vocabulary
	budget *meter.Meter
	depth  int
	size   int                     // of g when it was charged last
	rules  map[string]grammar.Node // of the forms that have no parts, by their JSON text
	err    error                   // the first one; methods that add paths stop after it
}

// ok keeps the first error. It reports whether there is none.
func (b *builder) ok(err error) bool {
	if b.err == nil {
		b.err = err
	}
	return b.err == nil
}

const (
	maxDepth = 100     // how deep forms may nest
	maxNodes = 400_000 // nodes and edges of a grammar
)

// add adds paths for the texts that a form allows. If ends is not empty, each path also reads one of the
// texts in ends after the form. Free text at the end of the form then stops at the first occurrence of such a
// text.
func (b *builder) add(source, target grammar.Node, f *Form, ends []string) {
	if b.depth++; b.depth > maxDepth {
		b.ok(fmt.Errorf("the forms nest deeper than %d", maxDepth))
	}
	defer func() { b.depth-- }()
	if !b.ok(b.charge()) {
		return
	}
	switch {
	case f.Free != nil:
		b.freeText(source, stopsAt(ends, target), f.Free.Excluded)
	case f.Tags != nil:
		b.tags(source, target, f.Tags, ends)
	case len(f.AnyOf) > 0:
		for i := range f.AnyOf {
			b.add(source, target, &f.AnyOf[i], ends)
		}
	case len(f.Sequence) > 0:
		last := len(f.Sequence) - 1
		for i := range last {
			next := b.g.Node()
			b.add(source, next, &f.Sequence[i], nil)
			source = next
		}
		b.add(source, target, &f.Sequence[last], ends)
	case f.Repeat != nil:
		b.repeat(source, target, f.Repeat, ends)
	case f.Separated != nil:
		b.separated(source, target, f.Separated, ends)
	case f.Tag != nil && len(f.Tag.End) == 0: // its content is followed by ends
		b.tag(source, target, f.Tag, ends)
	default:
		end := b.g.Node()
		b.oneOf(end, target, ends)
		b.addBounded(source, end, f)
	}
}

// tag adds paths that read t.Begin and then the content of the tag. If ends is not empty, each path then reads one of
// the texts in ends. The caller decides whether ends is t.End; tag does not use t.End itself.
func (b *builder) tag(source, target grammar.Node, t *Tag, ends []string) {
	content := b.g.Node()
	b.text(source, content, t.Begin)
	b.add(content, target, &t.Content, ends)
}

// addBounded adds paths for a form whose end does not depend on the text after it. Therefore it has, unlike add, no
// parameter ends.
func (b *builder) addBounded(source, target grammar.Node, f *Form) {
	switch {
	case f.Sequence != nil:
		b.g.Jump(source, target)
	case f.Text != "":
		b.text(source, target, f.Text)
	case f.Tag != nil:
		b.tag(source, target, f.Tag, f.Tag.End)
	default:
		b.embed(source, target, f)
	}
}

// embed adds a call of a rule for the texts of a form that has no parts. Equal forms share a rule, so that the ways to
// read an answer do not multiply.
func (b *builder) embed(source, target grammar.Node, f *Form) {
	key, err := json.Marshal(f)
	if !b.ok(err) || !b.ok(b.budget.Keep(len(key))) {
		return
	}
	rule, known := b.rules[string(key)]
	if !known {
		g, err := b.simple(f)
		switch {
		case !b.ok(err):
			return
		case g == nil:
			b.ok(errors.New("a form of answers without content"))
			return
		case (f.JSONSchema != nil || f.Parameters != nil) && !g.Trim():
			b.ok(f.noAnswer(b.v.longest, b.budget))
			return
		}
		b.size += g.Size() // charged by the package that made it
		rule = b.g.Embed(g)
		b.rules[string(key)] = rule
	}
	b.g.Call(source, rule, target)
	b.ok(b.charge())
}

// charge charges for what the grammar has grown.
func (b *builder) charge() error {
	size := b.g.Size()
	grown := size - b.size
	b.size = size
	if size > maxNodes {
		return fmt.Errorf("the grammar of the form has more than %d nodes and edges", maxNodes)
	}
	if err := b.budget.Spend(1 + grown); err != nil {
		return err
	}
	return b.budget.Keep(grown * grammar.NodeBytes)
}

// text adds a path that reads a fixed text. Where the text contains the name of a special token, the path
// reads the token.
func (b *builder) text(source, target grammar.Node, text string) {
	if err := b.budget.Spend(len(text)); err != nil {
		b.ok(fmt.Errorf("a text of %d bytes: %w", len(text), err))
		return
	}
	for {
		index, name := b.v.special(text)
		if index > 0 {
			next := b.g.Node()
			b.g.Read(source, grammar.NewTerminal(lexeme.Literal(text[:index])), next)
			source = next
		}
		if name == "" {
			b.g.Jump(source, target)
			return
		}
		if slices.Contains(b.v.ends, name) {
			b.ok(fmt.Errorf("the text %q has %s, which is the end of an answer and cannot be a part of it", text, name))
			return
		}
		next := b.g.Node()
		b.g.Read(source, grammar.NewTerminal(lexeme.Special(name)), next)
		source, text = next, text[index+len(name):]
	}
}

// oneOf adds a path for each of the given texts. If there are no texts, it adds a path that reads nothing.
func (b *builder) oneOf(source, target grammar.Node, texts []string) {
	if len(texts) == 0 {
		b.g.Jump(source, target)
	}
	for _, text := range texts {
		b.text(source, target, text)
	}
}

// stop is a way in which free text may end. The free text ends before the first occurrence of mark. The path then reads
// text, which begins with mark, and leads to the node target. If mark and text are empty, free text may end anywhere.
type stop struct {
	mark, text string
	target     grammar.Node
}

// stopsAt returns a stop for each text in ends. If ends is empty, it returns one stop with an empty text:
// free text may end anywhere.
func stopsAt(ends []string, target grammar.Node) []stop {
	if len(ends) == 0 {
		return []stop{{"", "", target}}
	}
	stops := make([]stop, len(ends))
	for i, text := range ends {
		stops[i] = stop{text, text, target}
	}
	return stops
}

// freeText adds paths that read free text and then the text of one of the stops, and lead to the target of this stop.
// The free text contains none of the texts in excluded.
func (b *builder) freeText(source grammar.Node, stops []stop, excluded []string) {
	var marks []string
	var nodes []grammar.Node  // the node after each mark
	index := map[string]int{} // of each mark
	var anywhere []stop       // those whose mark contains a special token, which free text never does, or is empty
	excluded = slices.Clone(excluded)
	for _, s := range stops {
		if at, name := b.v.special(s.text); s.text == "" || name != "" && at < len(s.mark) {
			anywhere = append(anywhere, s)
			if s.mark != "" {
				excluded = append(excluded, s.mark)
			}
			continue
		}
		if !b.ok(b.budget.Spend(1 + len(s.mark))) {
			return
		}
		i, known := index[s.mark]
		if !known {
			i = len(marks)
			index[s.mark] = i
			marks, nodes = append(marks, s.mark), append(nodes, b.g.Node())
		}
		b.text(nodes[i], s.target, s.text[len(s.mark):])
	}
	d, err := automaton.Free(marks, excluded, b.budget)
	if err != nil {
		b.ok(fmt.Errorf("free text with %d ends or triggers and %d excluded texts: %w", len(marks), len(excluded), err))
		return
	}
	end := b.g.Node()
	for _, s := range anywhere {
		b.text(end, s.target, s.text)
	}
	b.g.Read(source, grammar.LazyTerminal(func(alive func(int32) bool) *lexeme.Lexeme {
		key := fmt.Sprintf("free %q %q", marks, excluded)
		kept := d.Retag(func(tag int32) int32 {
			if !alive(tag) {
				key = ""
				return lexeme.None
			}
			return tag
		})
		return lexeme.FreeText(key, kept, int32(len(marks)))
	}), append(nodes, end)...)
}

// contents adds a path for each tag. The path reads the content and the end of the tag, then one of the texts in ends
// unless there are none, and leads to target. The result has the first node of each path.
func (b *builder) contents(tags []Tag, target grammar.Node, ends []string) []grammar.Node {
	if len(tags) == 0 {
		b.ok(errors.New("tags: there are none"))
	}
	closed := target // the node after the end of a tag
	if len(ends) > 0 {
		closed = b.g.Node()
		b.oneOf(closed, target, ends)
	}
	starts := make([]grammar.Node, len(tags))
	for i := range tags {
		starts[i] = b.g.Node()
		if b.err != nil {
			continue
		}
		if content := &tags[i].Content; len(tags[i].End) > 0 {
			b.add(starts[i], closed, content, tags[i].End)
		} else {
			b.add(starts[i], target, content, ends)
		}
		if b.err != nil {
			b.err = fmt.Errorf("the tag %.100q: %w", tags[i].Begin, b.err)
		}
	}
	return starts
}

// tags adds paths for free text with tags in it. If ends is not empty, each path then reads one of the texts
// in ends.
func (b *builder) tags(source, target grammar.Node, t *Tags, ends []string) {
	afterTag := b.g.Node()
	starts := b.contents(t.Tags, afterTag, t.endsOfTags(ends))
	triggers, err := newTriggers(t.Triggers, b.budget)
	if !b.ok(err) {
		return
	}
	var stops []stop
	used := map[string]bool{}
	for i, tag := range t.Tags {
		trigger, err := triggers.find(tag.Begin)
		if !b.ok(err) {
			return
		}
		used[trigger] = true
		stops = append(stops, stop{trigger, tag.Begin, starts[i]})
	}
	for _, trigger := range t.Triggers {
		if !used[trigger] {
			b.ok(fmt.Errorf("tags: no tag begins with the trigger %.100q", trigger))
			return
		}
	}
	free := b.g.Node() // not source: a path back to source would lead into other forms that begin there
	if t.AtLeastOne {
		for i, tag := range t.Tags {
			b.text(source, starts[i], tag.Begin)
		}
	} else {
		b.g.Jump(source, free)
	}
	if t.StopAfterFirst {
		b.g.Jump(afterTag, target)
	} else {
		b.g.Jump(afterTag, free)
	}
	if !t.StopAfterFirst || !t.AtLeastOne {
		b.freeText(free, append(stops, stopsAt(ends, target)...), t.Excluded)
	}
}

// endsOfTags returns the texts of ends that follow each tag at once.
func (t *Tags) endsOfTags(ends []string) []string {
	if t.StopAfterFirst {
		return ends
	}
	return nil
}

// separated adds a list of tags with a separator between them. If ends is not empty, each path then reads one of the
// texts in ends.
func (b *builder) separated(source, target grammar.Node, s *Separated, ends []string) {
	if !s.AtLeastOne {
		b.oneOf(source, target, ends)
	}
	item := b.g.Node()
	b.g.Jump(source, item)
	b.items(item, target, s.Tags, ends) // the last one
	if !s.StopAfterFirst {
		afterTag := b.g.Node()
		b.items(item, afterTag, s.Tags, nil)
		b.text(afterTag, item, s.Separator)
	}
}

// items adds a path for each tag of a list, and then for one of the texts in ends unless there are none.
func (b *builder) items(source, target grammar.Node, tags []Tag, ends []string) {
	for i, start := range b.contents(tags, target, ends) {
		b.text(source, start, tags[i].Begin)
	}
}

// repeat adds paths for several texts of a form one after another. If ends is not empty, one of the texts in
// ends follows the last text.
func (b *builder) repeat(source, target grammar.Node, r *Repeat, ends []string) {
	if r.Min < 0 || r.Max >= 0 && r.Max < r.Min {
		b.ok(fmt.Errorf("repeat: min is %d and max is %d", r.Min, r.Max))
	}
	if r.Min == 0 {
		b.oneOf(source, target, ends)
	}
	if r.Max == 0 {
		return
	}
	one := b.rule(&r.Form, nil)
	last := one
	if len(ends) > 0 {
		last = b.rule(&r.Form, ends)
	}
	for n := 1; b.err == nil; n++ {
		if n >= r.Min {
			b.g.Call(source, last, target)
		}
		next := b.g.Node()
		switch {
		case n == r.Max:
			return
		case r.Max < 0 && n >= r.Min:
			b.g.Call(source, one, next)
			b.g.Call(next, one, next)
			b.g.Call(next, last, target)
			return
		}
		b.g.Call(source, one, next)
		source = next
		b.ok(b.charge())
	}
}

// rule adds a rule that reads a text of a form and, if ends is not empty, one of the texts in ends. It
// returns the first node of the rule.
func (b *builder) rule(f *Form, ends []string) grammar.Node {
	start, end := b.g.Node(), b.g.Node()
	b.g.Final(end)
	b.add(start, end, f, ends)
	return start
}
