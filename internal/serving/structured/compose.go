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

// builder makes the grammar of a form that has parts. Each of its methods adds edges between two nodes.
type builder struct {
	g      *grammar.Grammar
	v      *Vocabulary
	budget *automaton.Budget
	depth  int
}

const (
	maxDepth = 100     // how deep forms may nest
	maxNodes = 400_000 // of a grammar
)

// add adds the texts of a form, each with one of the texts in ends after it if there are any. Free text
// at the end of the form ends where one of them first occurs.
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
		return b.free(from, ends, f.Free.Without, to)
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
	}
	if f.Tag != nil && len(f.Tag.End) == 0 {
		content := b.g.Node()
		if err := b.text(from, content, f.Tag.Begin); err != nil {
			return err
		}
		return b.add(content, to, &f.Tag.Content, ends)
	}
	end := to
	if len(ends) > 0 {
		end = b.g.Node()
		if err := b.anyText(end, to, ends); err != nil {
			return err
		}
	}
	return b.addBounded(from, end, f)
}

// addBounded adds a form that does not read text up to an end that follows it.
func (b *builder) addBounded(from, to grammar.Node, f *Form) error {
	switch {
	case f.Sequence != nil:
		b.g.Jump(from, to)
		return nil
	case f.Text != "":
		return b.text(from, to, f.Text)
	case f.Tag != nil:
		content := b.g.Node()
		if err := b.text(from, content, f.Tag.Begin); err != nil {
			return err
		}
		return b.add(content, to, &f.Tag.Content, f.Tag.End)
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
	b.g.Call(from, b.g.Embed(g), to)
	if b.g.Size() > maxNodes {
		return fmt.Errorf("the grammar of the form has more than %d nodes and edges", maxNodes)
	}
	return nil
}

// text adds a fixed text. The names of special tokens in it become the tokens.
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
			b.g.Read(from, b.g.Terminal(lexeme.Text("literal "+text[:at], d, lexeme.Raw, false)), next)
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
		b.g.Read(from, b.g.Terminal(lexeme.Special(name)), next)
		from, text = next, text[at+len(name):]
	}
}

func (b *builder) anyText(from, to grammar.Node, texts []string) error {
	for _, text := range texts {
		if err := b.text(from, to, text); err != nil {
			return err
		}
	}
	return nil
}

// free adds free text without the texts in without. It ends where one of the texts in ends first occurs,
// which belongs to it. Without ends, it may end everywhere.
func (b *builder) free(from grammar.Node, ends, without []string, to grammar.Node) error {
	stops := make([]stop, len(ends))
	for i, text := range ends {
		stops[i] = stop{text, text, to}
	}
	if len(ends) == 0 {
		stops = []stop{{"", "", to}}
	}
	return b.freeUntil(from, stops, without)
}

// stop is where free text ends: at the first occurrence of a mark, which is the beginning of text. The
// rest of text, which may contain special tokens, leads to a node. If text is empty, free text may end
// everywhere.
type stop struct {
	mark, text string
	to         grammar.Node
}

func (b *builder) freeUntil(from grammar.Node, stops []stop, without []string) error {
	var marks []string
	var nodes []grammar.Node
	var anywhere []stop // those that are not in marks
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
	b.g.Read(from, b.g.Lazy(func(alive func(int32) bool) *lexeme.Lexeme {
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

// contents adds the contents and ends of tags, up to a node, and returns where each content begins.
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
	free := b.g.Node() // not from, to which nothing may lead back
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
	} else if err := b.ending(after, to, ends); err != nil || t.AtLeastOne {
		return err
	}
	for _, end := range ends {
		stops = append(stops, stop{end, end, to})
	}
	if len(ends) == 0 {
		stops = append(stops, stop{"", "", to})
	}
	return b.freeUntil(free, stops, t.Without)
}

// ending adds one of the ends, or nothing if there are none.
func (b *builder) ending(from, to grammar.Node, ends []string) error {
	if len(ends) == 0 {
		b.g.Jump(from, to)
	}
	return b.anyText(from, to, ends)
}

// trigger returns the trigger with which the text of a tag begins.
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
