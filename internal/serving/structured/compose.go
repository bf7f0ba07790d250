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
// The texts along these paths are those that the form allows.
type builder struct {
	g      *grammar.Grammar
	v      *Vocabulary
	budget *automaton.Budget
	depth  int
}

const (
	maxDepth = 100     // how deep forms may nest
	maxNodes = 400_000 // nodes and edges of a grammar
)

// add adds paths for the texts that a form allows. If ends is not empty, each path also reads one of the
// texts in ends after the form. Free text at the end of the form then stops at the first occurrence of such a
// text.
func (b *builder) add(from, to grammar.Node, f *Form, ends []string) error {
	if b.depth++; b.depth > maxDepth {
		return fmt.Errorf("the forms nest deeper than %d", maxDepth)
	}
	defer func() { b.depth-- }()
	if err := b.budget.Spend(1); err != nil {
		return err
	}
	switch {
	case f.Free != nil:
		return b.freeText(from, stopsAt(ends, to), f.Free.Without)
	case f.Tags != nil:
		return b.tags(from, to, f.Tags, ends)
	case len(f.AnyOf) > 0:
		for i := range f.AnyOf {
			if err := b.add(from, to, &f.AnyOf[i], ends); err != nil {
				return err
			}
		}
		return nil
	case len(f.Sequence) > 0:
		last := len(f.Sequence) - 1
		for i := range last {
			next := b.g.Node()
			if err := b.add(from, next, &f.Sequence[i], nil); err != nil {
				return err
			}
			from = next
		}
		return b.add(from, to, &f.Sequence[last], ends)
	case f.Repeat != nil:
		return b.repeat(from, to, f.Repeat, ends)
	case f.Tag != nil && len(f.Tag.End) == 0: // its content is followed by ends
		return b.tag(from, to, f.Tag, ends)
	}
	end := b.g.Node()
	if err := b.oneOf(end, to, ends); err != nil {
		return err
	}
	return b.addBounded(from, end, f)
}

// tag adds paths for the begin of a tag, its content and, if ends is not empty, one of the texts in ends.
func (b *builder) tag(from, to grammar.Node, t *Tag, ends []string) error {
	content := b.g.Node()
	if err := b.text(from, content, t.Begin); err != nil {
		return err
	}
	return b.add(content, to, &t.Content, ends)
}

// addBounded adds paths for a form that cannot end with free text. Such a form needs no ends: where it stops
// does not depend on the text after it.
func (b *builder) addBounded(from, to grammar.Node, f *Form) error {
	switch {
	case f.Sequence != nil:
		b.g.Jump(from, to)
		return nil
	case f.Text != "":
		return b.text(from, to, f.Text)
	case f.Tag != nil:
		return b.tag(from, to, f.Tag, f.Tag.End)
	case f.Separated != nil:
		return b.separated(from, to, f.Separated)
	}
	g, err := b.simple(f)
	switch {
	case err != nil:
		return err
	case g == nil:
		return errors.New("a form of answers without content")
	}
	if f.JSONSchema != nil && !g.Trim() {
		return f.noAnswer(b.budget)
	}
	b.g.Call(from, b.g.Embed(g), to)
	if b.g.Size() > maxNodes {
		return fmt.Errorf("the grammar of the form has more than %d nodes and edges", maxNodes)
	}
	return nil
}

// text adds a path that reads a fixed text. Where the text contains the name of a special token, the path
// reads the token.
func (b *builder) text(from, to grammar.Node, text string) error {
	if err := b.budget.Spend(len(text)); err != nil {
		return err
	}
	for {
		at, name := b.v.special(text)
		if at > 0 {
			d, err := automaton.Texts([]string{text[:at]}, b.budget)
			if err != nil {
				return err
			}
			next := b.g.Node()
			b.g.Read(from, grammar.NewTerminal(lexeme.Text("literal "+text[:at], d, lexeme.Raw, false)), next)
			from = next
		}
		if name == "" {
			b.g.Jump(from, to)
			return nil
		}
		if slices.Contains(b.v.ends, name) {
			return fmt.Errorf("the text %q has %s, which is the end of an answer and cannot be a part of it", text, name)
		}
		next := b.g.Node()
		b.g.Read(from, grammar.NewTerminal(lexeme.Special(name)), next)
		from, text = next, text[at+len(name):]
	}
}

// oneOf adds a path for each text, or one that reads nothing if there are no texts.
func (b *builder) oneOf(from, to grammar.Node, texts []string) error {
	if len(texts) == 0 {
		b.g.Jump(from, to)
	}
	for _, text := range texts {
		if err := b.text(from, to, text); err != nil {
			return err
		}
	}
	return nil
}

// stop says where free text ends: before the first occurrence of mark. The path from there reads text, which
// begins with mark, and leads to the node to. If text is empty, free text may end anywhere.
type stop struct {
	mark, text string
	to         grammar.Node
}

// stopsAt returns a stop for each text in ends. If ends is empty, it returns the stop of free text that may
// end anywhere.
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
func (b *builder) freeText(from grammar.Node, stops []stop, without []string) error {
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
		if err := b.budget.Spend(len(marks)); err != nil {
			return err
		}
		i := slices.Index(marks, s.mark)
		if i < 0 {
			i = len(marks)
			marks, nodes = append(marks, s.mark), append(nodes, b.g.Node())
		}
		if err := b.text(nodes[i], s.to, s.text[len(s.mark):]); err != nil {
			return err
		}
	}
	d, err := automaton.Free(marks, without, b.budget)
	if err != nil {
		return err
	}
	end := b.g.Node()
	for _, s := range anywhere {
		if err := b.text(end, s.to, s.text); err != nil {
			return err
		}
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
	return nil
}

// contents adds paths for the content and the end of each tag, all to the node to. It returns the node at
// which the content of each tag begins.
func (b *builder) contents(tags []Tag, to grammar.Node) ([]grammar.Node, error) {
	if len(tags) == 0 {
		return nil, errors.New("tags: there are none")
	}
	starts := make([]grammar.Node, len(tags))
	for i := range tags {
		starts[i] = b.g.Node()
		if err := b.add(starts[i], to, &tags[i].Content, tags[i].End); err != nil {
			return nil, fmt.Errorf("the tag %q: %w", tags[i].Begin, err)
		}
	}
	return starts, nil
}

// tags adds paths for free text with tags in it. If ends is not empty, each path then reads one of the texts
// in ends.
func (b *builder) tags(from, to grammar.Node, t *Tags, ends []string) error {
	if err := b.budget.Spend(len(t.Tags) * len(t.Triggers)); err != nil {
		return err
	}
	after := b.g.Node()
	starts, err := b.contents(t.Tags, after)
	if err != nil {
		return err
	}
	var stops []stop
	for i, tag := range t.Tags {
		trigger, err := t.trigger(tag.Begin)
		if err != nil {
			return err
		}
		stops = append(stops, stop{trigger, tag.Begin, starts[i]})
	}
	for _, trigger := range t.Triggers {
		if !slices.ContainsFunc(stops, func(s stop) bool { return s.mark == trigger }) {
			return fmt.Errorf("tags: no tag begins with the trigger %q", trigger)
		}
	}
	free := b.g.Node() // not from: a path back to from would lead into other forms that begin there
	if t.AtLeastOne {
		for i, tag := range t.Tags {
			if err := b.text(from, starts[i], tag.Begin); err != nil {
				return err
			}
		}
	} else {
		b.g.Jump(from, free)
	}
	if !t.StopAfterFirst {
		b.g.Jump(after, free)
	} else if err := b.oneOf(after, to, ends); err != nil || t.AtLeastOne {
		return err
	}
	return b.freeText(free, append(stops, stopsAt(ends, to)...), t.Without)
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
func (b *builder) separated(from, to grammar.Node, s *Separated) error {
	item, after := b.g.Node(), b.g.Node()
	starts, err := b.contents(s.Tags, after)
	if err != nil {
		return err
	}
	for i, tag := range s.Tags {
		if err := b.text(item, starts[i], tag.Begin); err != nil {
			return err
		}
	}
	b.g.Jump(from, item)
	b.g.Jump(after, to)
	if !s.AtLeastOne {
		b.g.Jump(from, to)
	}
	if s.StopAfterFirst {
		return nil
	}
	return b.text(after, item, s.Separator)
}

// repeat adds paths for several texts of a form one after another. If ends is not empty, one of the texts in
// ends follows the last text.
func (b *builder) repeat(from, to grammar.Node, r *Repeat, ends []string) error {
	if r.Min < 0 || r.Max >= 0 && r.Max < r.Min {
		return fmt.Errorf("repeat: min is %d and max is %d", r.Min, r.Max)
	}
	if r.Min == 0 {
		if err := b.oneOf(from, to, ends); err != nil || r.Max == 0 {
			return err
		}
	}
	one, err := b.rule(&r.Form, nil)
	if err != nil {
		return err
	}
	last := one
	if len(ends) > 0 {
		if last, err = b.rule(&r.Form, ends); err != nil {
			return err
		}
	}
	for n := 1; ; n++ {
		if n >= r.Min {
			b.g.Call(from, last, to)
		}
		next := b.g.Node()
		switch {
		case n == r.Max:
			return nil
		case r.Max < 0 && n >= r.Min:
			b.g.Call(from, one, next)
			b.g.Call(next, one, next)
			b.g.Call(next, last, to)
			return nil
		case b.g.Size() > maxNodes:
			return fmt.Errorf("the grammar of the form has more than %d nodes and edges", maxNodes)
		}
		b.g.Call(from, one, next)
		from = next
	}
}

// rule adds a rule that reads a text of a form and, if ends is not empty, one of the texts in ends. It
// returns the first node of the rule.
func (b *builder) rule(f *Form, ends []string) (grammar.Node, error) {
	start, end := b.g.Node(), b.g.Node()
	b.g.Final(end)
	return start, b.add(start, end, f, ends)
}
