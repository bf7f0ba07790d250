package structured

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/gbnf"
	"llmmemory/internal/serving/structured/grammar"
	"llmmemory/internal/serving/structured/jsonschema"
	"llmmemory/internal/serving/structured/lexeme"
	"llmmemory/internal/serving/structured/regex"
)

// Form describes what an answer must look like. Exactly one field besides Compact is set.
//
// A special token occurs only if a form names it. The name of a special token stands for the token in Text, and in the
// fields Begin, End, Triggers and Separator of Tag, Tags and Separated, and in the texts of ParameterTags.
type Form struct {
	JSONSchema []byte      `json:",omitempty"` // a JSON text that the schema allows
	JSONObject bool        `json:",omitempty"` // a JSON object
	Parameters *Parameters `json:",omitempty"`
	Grammar    string      `json:",omitempty"` // a text that the rule root of this grammar derives, in GBNF or EBNF
	Regex      string      `json:",omitempty"` // a text that it matches completely
	Choice     []string    `json:",omitempty"` // one of these texts
	Text       string      `json:",omitempty"` // this text
	Free       *Free       `json:",omitempty"`
	Sequence   []Form      `json:",omitzero"`  // texts of these forms one after another; the empty text if the list is empty but not nil
	AnyOf      []Form      `json:",omitempty"` // a text of one of these forms
	Tag        *Tag        `json:",omitempty"`
	Tags       *Tags       `json:",omitempty"`
	Separated  *Separated  `json:",omitempty"`
	Repeat     *Repeat     `json:",omitempty"`

	// Compact limits the white space of a JSON text to one space after each comma and colon.
	Compact bool `json:",omitempty"`
}

// Compacted returns the form with Compact set in all its parts that are JSON.
func (f Form) Compacted() Form {
	compacted := func(tags []Tag) []Tag {
		tags = slices.Clone(tags)
		for i := range tags {
			tags[i].Content = tags[i].Content.Compacted()
		}
		return tags
	}
	f.Compact = f.JSONSchema != nil || f.JSONObject || f.Parameters != nil
	for _, parts := range []*[]Form{&f.Sequence, &f.AnyOf} {
		*parts = slices.Clone(*parts)
		for i := range *parts {
			(*parts)[i] = (*parts)[i].Compacted()
		}
	}
	switch {
	case f.Repeat != nil:
		all := *f.Repeat
		all.Form = all.Form.Compacted()
		f.Repeat = &all
	case f.Tag != nil:
		f.Tag = &compacted([]Tag{*f.Tag})[0]
	case f.Tags != nil:
		all := *f.Tags
		all.Tags = compacted(all.Tags)
		f.Tags = &all
	case f.Separated != nil:
		all := *f.Separated
		all.Tags = compacted(all.Tags)
		f.Separated = &all
	}
	return f
}

// Parameters is the members of a JSON object that the schema allows, written as texts between tags.
type Parameters struct {
	JSONSchema []byte
	Tags       ParameterTags
}

// ParameterTags are the texts around parameters.
type ParameterTags = jsonschema.Tags

// Free is any text that contains none of the texts in Excluded.
type Free struct{ Excluded []string }

// Tag is a Begin, a Content and one of the texts in End. If End is empty, nothing follows Content. If Content
// ends with free text, the free text ends at the first occurrence of a text in End.
type Tag struct {
	Begin   string
	Content Form
	End     []string
}

// Tags is free text with tags in it. The free text contains none of the texts in Excluded, and a trigger only
// as the beginning of a tag. Each tag begins with exactly one of the triggers.
type Tags struct {
	Triggers       []string
	Tags           []Tag
	Excluded       []string
	AtLeastOne     bool // the first tag comes at once, without free text before it
	StopAfterFirst bool // nothing comes after the first tag
}

// Separated is a list of tags with a separator between them.
type Separated struct {
	Tags           []Tag
	Separator      string
	AtLeastOne     bool // the list is not empty
	StopAfterFirst bool // the list has at most one tag
}

// Repeat is Min to Max texts of a form one after another. If Max is below 0, there is no upper limit.
type Repeat struct {
	Form     Form
	Min, Max int
}

// CompileWork is the limit of the work of one compilation, in units of meter.Meter.
const CompileWork = 1_000_000

const (
	compileBytes = 256 << 20 // that one compilation may allocate
	compileDepth = 1000      // how deep the parts of a form may nest
)

// ErrTooLarge is the error for a form whose compilation needs more work than is allowed.
var ErrTooLarge = meter.ErrTooLarge

var errNoAnswer = errors.New("no answer has this form")

var errNoArguments = errors.New("no arguments that the schema allows can be written in calls of this model")

// noAnswer returns the error for a form that no answer has.
func (f *Form) noAnswer(longest int, budget *meter.Meter) error {
	schema := f.JSONSchema
	if f.Parameters != nil {
		schema = f.Parameters.JSONSchema
		if g, err := jsonschema.Compile(schema, f.Compact, longest, budget); err != nil {
			return err
		} else if g.Trim() {
			return errNoArguments
		}
	}
	if schema != nil {
		err := jsonschema.Contradiction(schema, budget)
		if errors.Is(err, meter.ErrTooLarge) {
			return fmt.Errorf("%w; to find out why: %w", errNoAnswer, err)
		}
		return err
	}
	return errNoAnswer
}

func (f Form) grammar(v *Vocabulary, budget *meter.Meter) (*grammar.Grammar, error) {
	b := &builder{v: v, budget: budget, rules: map[string]grammar.Node{}}
	if g, err := b.simple(&f); g != nil || err != nil {
		return g, err
	}
	b.g = grammar.New()
	end := b.g.Node()
	b.g.Final(end)
	b.add(0, end, &f, nil)
	return b.g, b.err
}

// simple returns the grammar of a form whose field is JSONSchema, JSONObject, Parameters, Grammar, Regex or Choice. For
// any other form it returns nil.
func (b *builder) simple(f *Form) (*grammar.Grammar, error) {
	switch {
	case f.JSONSchema != nil:
		return jsonschema.Compile(f.JSONSchema, f.Compact, b.v.longest, b.budget)
	case f.JSONObject:
		return jsonschema.Compile([]byte(`{"type":"object"}`), f.Compact, b.v.longest, b.budget)
	case f.Parameters != nil:
		text := &fixedText{builder{v: b.v, budget: b.budget}}
		g, err := jsonschema.CompileParameters(f.Parameters.JSONSchema, &f.Parameters.Tags, f.Compact, b.v.longest, b.budget, text)
		return g, cmp.Or(err, text.b.err)
	case f.Grammar != "":
		return gbnf.Compile(f.Grammar, b.budget)
	case f.Regex != "":
		d, err := regex.Full(f.Regex, b.budget)
		switch {
		case err != nil:
			return nil, err
		case d.Empty():
			return nil, errNoAnswer
		}
		return single(lexeme.Text("", d.Untagged(), lexeme.Raw, false)), nil
	case len(f.Choice) > 0:
		for _, text := range f.Choice {
			err := b.budget.Spend(1 + len(text))
			if err == nil {
				err = b.budget.Keep(lexeme.ChoiceBytes * len(text))
			}
			if err != nil {
				return nil, fmt.Errorf("choices: %w", err)
			}
		}
		return single(lexeme.Choices(f.Choice)), nil
	}
	return nil, nil
}

// fixedText implements jsonschema.Fixed.
type fixedText struct{ b builder }

func (t *fixedText) Read(g *grammar.Grammar, source, target grammar.Node, text string) {
	t.b.g = g
	t.b.text(source, target, text)
}

func (t *fixedText) Plain(text string) int {
	n, _ := t.b.v.special(text)
	return n
}

// single returns the grammar of one lexeme.
func single(l *lexeme.Lexeme) *grammar.Grammar {
	g := grammar.New()
	end := g.Node()
	g.Final(end)
	g.Read(0, grammar.NewTerminal(l), end)
	return g
}
