package structured

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/grammar"
	"llmmemory/internal/serving/structured/lexeme"
)

// builder makes the grammar of a form that has parts. Its methods add paths between two nodes of the grammar.
// Each path reads a text that the form allows.
type builder struct {
	g      *grammar.Grammar
	v      *Vocabulary
	budget *automaton.Budget
	depth  int
	err    error // the first one; methods that add paths stop after it
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
func (b *builder) add(from, to grammar.Node, f *Form, ends []string) {
	if b.depth++; b.depth > maxDepth {
		b.ok(fmt.Errorf("the forms nest deeper than %d", maxDepth))
	}
	defer func() { b.depth-- }()
	if !b.ok(b.budget.Spend(1)) {
		return
	}
	switch {
	case f.Free != nil:
		b.freeText(from, stopsAt(ends, to), f.Free.Without)
	case f.Tags != nil:
		b.tags(from, to, f.Tags, ends)
	case len(f.AnyOf) > 0:
		for i := range f.AnyOf {
			b.add(from, to, &f.AnyOf[i], ends)
		}
	case len(f.Sequence) > 0:
		last := len(f.Sequence) - 1
		for i := range last {
			next := b.g.Node()
			b.add(from, next, &f.Sequence[i], nil)
			from = next
		}
		b.add(from, to, &f.Sequence[last], ends)
	case f.Repeat != nil:
		b.repeat(from, to, f.Repeat, ends)
	case f.Tag != nil && len(f.Tag.End) == 0: // its content is followed by ends
		b.tag(from, to, f.Tag, ends)
	default:
		end := b.g.Node()
		b.oneOf(end, to, ends)
		b.addBounded(from, end, f)
	}
}

// tag adds paths for the begin of a tag, its content and, if ends is not empty, one of the texts in ends.
func (b *builder) tag(from, to grammar.Node, t *Tag, ends []string) {
	content := b.g.Node()
	b.text(from, content, t.Begin)
	b.add(content, to, &t.Content, ends)
}

// addBounded adds paths for a form that cannot end with free text. Such a form needs no ends: where it stops
// does not depend on the text after it.
func (b *builder) addBounded(from, to grammar.Node, f *Form) {
	switch {
	case f.Sequence != nil:
		b.g.Jump(from, to)
	case f.Text != "":
		b.text(from, to, f.Text)
	case f.Tag != nil:
		b.tag(from, to, f.Tag, f.Tag.End)
	case f.Separated != nil:
		b.separated(from, to, f.Separated)
	default:
		b.embed(from, to, f)
	}
}

// embed adds a call of a rule for the texts of a form that has no parts.
func (b *builder) embed(from, to grammar.Node, f *Form) {
	g, err := b.simple(f)
	switch {
	case !b.ok(err):
	case g == nil:
		b.ok(errors.New("a form of answers without content"))
	case f.JSONSchema != nil && !g.Trim():
		b.ok(f.noAnswer(b.budget))
	default:
		b.g.Call(from, b.g.Embed(g), to)
		b.ok(b.checkSize())
	}
}

func (b *builder) checkSize() error {
	if b.g.Size() > maxNodes {
		return fmt.Errorf("the grammar of the form has more than %d nodes and edges", maxNodes)
	}
	return nil
}

// text adds a path that reads a fixed text. Where the text contains the name of a special token, the path
// reads the token.
func (b *builder) text(from, to grammar.Node, text string) {
	if !b.ok(b.budget.Spend(len(text))) {
		return
	}
	for {
		at, name := b.v.special(text)
		if at > 0 {
			d, err := automaton.Texts([]string{text[:at]}, b.budget)
			if !b.ok(err) {
				return
			}
			next := b.g.Node()
			b.g.Read(from, grammar.NewTerminal(lexeme.Text("literal "+text[:at], d, lexeme.Raw, false)), next)
			from = next
		}
		if name == "" {
			b.g.Jump(from, to)
			return
		}
		if slices.Contains(b.v.ends, name) {
			b.ok(fmt.Errorf("the text %q has %s, which is the end of an answer and cannot be a part of it", text, name))
			return
		}
		next := b.g.Node()
		b.g.Read(from, grammar.NewTerminal(lexeme.Special(name)), next)
		from, text = next, text[at+len(name):]
	}
}

// oneOf adds a path for each of the given texts. If there are no texts, it adds a path that reads nothing.
func (b *builder) oneOf(from, to grammar.Node, texts []string) {
	if len(texts) == 0 {
		b.g.Jump(from, to)
	}
	for _, text := range texts {
		b.text(from, to, text)
	}
}

// stop is a place where free text may end: before the first occurrence of mark. After the free text, the path
// reads text, which begins with mark, and leads to the node to. If text is empty, free text may end anywhere.
type stop struct {
	mark, text string
	to         grammar.Node
}

// stopsAt returns a stop for each text in ends. If ends is empty, it returns one stop with an empty text:
// free text may end anywhere.
func stopsAt(ends []string, to grammar.Node) []stop {
	if len(ends) == 0 {
		return []stop{{"", "", to}}
	}
	stops := make([]stop, len(ends))
	for i, text := range ends {
		stops[i] = stop{text, text, to}
	}
	return stops
}

// freeText adds paths for free text that contains none of the texts in without, up to one of the stops.
func (b *builder) freeText(from grammar.Node, stops []stop, without []string) {
	var marks []string
	var nodes []grammar.Node // the node after each mark
	var anywhere []stop      // those whose mark contains a special token, which free text never does, or is empty
	without = slices.Clone(without)
	for _, s := range stops {
		if at, name := b.v.special(s.text); s.text == "" || name != "" && at < len(s.mark) {
			anywhere = append(anywhere, s)
			if s.mark != "" {
				without = append(without, s.mark)
			}
			continue
		}
		if !b.ok(b.budget.Spend(len(marks))) {
			return
		}
		i := slices.Index(marks, s.mark)
		if i < 0 {
			i = len(marks)
			marks, nodes = append(marks, s.mark), append(nodes, b.g.Node())
		}
		b.text(nodes[i], s.to, s.text[len(s.mark):])
	}
	d, err := automaton.Free(marks, without, b.budget)
	if !b.ok(err) {
		return
	}
	end := b.g.Node()
	for _, s := range anywhere {
		b.text(end, s.to, s.text)
	}
	b.g.Read(from, grammar.LazyTerminal(func(alive func(int32) bool) *lexeme.Lexeme {
		key := fmt.Sprintf("free %q %q", marks, without)
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

// contents adds, for each tag, a path that reads the content and the end of the tag and leads to the node to.
// It returns the first node of each of these paths.
func (b *builder) contents(tags []Tag, to grammar.Node) []grammar.Node {
	if len(tags) == 0 {
		b.ok(errors.New("tags: there are none"))
	}
	starts := make([]grammar.Node, len(tags))
	for i := range tags {
		starts[i] = b.g.Node()
		if b.err != nil {
			continue
		}
		if b.add(starts[i], to, &tags[i].Content, tags[i].End); b.err != nil {
			b.err = fmt.Errorf("the tag %q: %w", tags[i].Begin, b.err)
		}
	}
	return starts
}

// tags adds paths for free text with tags in it. If ends is not empty, each path then reads one of the texts
// in ends.
func (b *builder) tags(from, to grammar.Node, t *Tags, ends []string) {
	if !b.ok(b.budget.Spend(len(t.Tags) * len(t.Triggers))) {
		return
	}
	after := b.g.Node()
	starts := b.contents(t.Tags, after)
	var stops []stop
	for i, tag := range t.Tags {
		trigger, err := t.trigger(tag.Begin)
		if !b.ok(err) {
			return
		}
		stops = append(stops, stop{trigger, tag.Begin, starts[i]})
	}
	for _, trigger := range t.Triggers {
		if !slices.ContainsFunc(stops, func(s stop) bool { return s.mark == trigger }) {
			b.ok(fmt.Errorf("tags: no tag begins with the trigger %q", trigger))
			return
		}
	}
	free := b.g.Node() // not from: a path back to from would lead into other forms that begin there
	if t.AtLeastOne {
		for i, tag := range t.Tags {
			b.text(from, starts[i], tag.Begin)
		}
	} else {
		b.g.Jump(from, free)
	}
	if t.StopAfterFirst {
		b.oneOf(after, to, ends)
	} else {
		b.g.Jump(after, free)
	}
	if !t.StopAfterFirst || !t.AtLeastOne {
		b.freeText(free, append(stops, stopsAt(ends, to)...), t.Without)
	}
}

// trigger returns the trigger with which the begin of a tag starts. It is an error if there is none or more
// than one.
func (t *Tags) trigger(begin string) (string, error) {
	found := ""
	for _, trigger := range t.Triggers {
		switch {
		case trigger == "":
			return "", errors.New("tags: a trigger is empty")
		case !strings.HasPrefix(begin, trigger) || trigger == found:
		case found != "":
			return "", fmt.Errorf("tags: the tag %q begins with two triggers, %q and %q", begin, found, trigger)
		default:
			found = trigger
		}
	}
	if found == "" {
		return "", fmt.Errorf("tags: the tag %q begins with none of the triggers", begin)
	}
	return found, nil
}

// separated adds a list of tags with a separator between them.
func (b *builder) separated(from, to grammar.Node, s *Separated) {
	item, after := b.g.Node(), b.g.Node()
	starts := b.contents(s.Tags, after)
	for i, tag := range s.Tags {
		b.text(item, starts[i], tag.Begin)
	}
	b.g.Jump(from, item)
	b.g.Jump(after, to)
	if !s.AtLeastOne {
		b.g.Jump(from, to)
	}
	if !s.StopAfterFirst {
		b.text(after, item, s.Separator)
	}
}

// repeat adds paths for several texts of a form one after another. If ends is not empty, one of the texts in
// ends follows the last text.
func (b *builder) repeat(from, to grammar.Node, r *Repeat, ends []string) {
	if r.Min < 0 || r.Max >= 0 && r.Max < r.Min {
		b.ok(fmt.Errorf("repeat: min is %d and max is %d", r.Min, r.Max))
	}
	if r.Min == 0 {
		b.oneOf(from, to, ends)
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
			b.g.Call(from, last, to)
		}
		next := b.g.Node()
		switch {
		case n == r.Max:
			return
		case r.Max < 0 && n >= r.Min:
			b.g.Call(from, one, next)
			b.g.Call(next, one, next)
			b.g.Call(next, last, to)
			return
		}
		b.g.Call(from, one, next)
		from = next
		b.ok(b.checkSize())
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
