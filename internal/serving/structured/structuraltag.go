package structured

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"llmmemory/internal/serving/meter"
)

const (
	tagWork  = 4_000_000 // limit of the work of reading a structural tag
	tagBytes = 64 << 20  // limit of what reading it allocates besides the texts in it
)

// StructuralTag reads a structural tag as xgrammar and vLLM define it: an object with a format, or the
// older one with structures and triggers.
func StructuralTag(data []byte) (Form, error) {
	form, err := structuralTag(data, meter.New(context.Background(), meter.Limits{Work: tagWork, Bytes: tagBytes}))
	if err != nil {
		return Form{}, fmt.Errorf("structural tag: %w", err)
	}
	return form, nil
}

func structuralTag(data []byte, m *meter.Meter) (Form, error) {
	v, err := readTagValue(data, m)
	switch {
	case errors.Is(err, meter.ErrTooLarge):
		return Form{}, fmt.Errorf("%d bytes: %w", len(data), err)
	case err != nil:
		return Form{}, fmt.Errorf("it is not a JSON object: %w", err)
	case v.members == nil:
		return Form{}, errors.New("it is not a JSON object")
	case v.members["structures"].isSet():
		return olderTag(v)
	}
	var kind string
	var format *tagValue
	if err := v.fields(map[string]any{"type": &kind, "format": &format}); err != nil {
		return Form{}, err
	}
	if format == nil {
		return Form{}, errors.New("it has neither format nor structures")
	}
	return readFormat("format", format)
}

func olderTag(v *tagValue) (Form, error) {
	var kind string
	var structures []*tagValue
	tags := &Tags{}
	if err := v.fields(map[string]any{"type": &kind, "triggers": &tags.Triggers, "structures": &structures}); err != nil {
		return Form{}, err
	}
	for i, s := range structures {
		var begin, end string
		var schema *tagValue
		err := s.fields(map[string]any{"begin": &begin, "end": &end, "schema": &schema})
		if err != nil {
			return Form{}, fmt.Errorf("structures[%d]: %w", i, err)
		}
		content, err := schemaForm(schema)
		if err != nil {
			return Form{}, fmt.Errorf("structures[%d]: %w", i, err)
		}
		tags.Tags = append(tags.Tags, Tag{Begin: begin, Content: content, End: endsOf(end)})
	}
	return Form{Tags: tags}, nil
}

// schemaForm returns the form of a schema. The schema may be a string that contains JSON. If it is missing,
// any JSON value is allowed.
func schemaForm(v *tagValue) (Form, error) {
	schema := json.RawMessage("true")
	if v.isSet() {
		schema = v.raw
	}
	var text string
	if json.Unmarshal(schema, &text) == nil {
		schema = json.RawMessage(text)
	}
	if !json.Valid(schema) {
		return Form{}, errors.New("the schema is not JSON")
	}
	return Form{JSONSchema: schema}, nil
}

// endsOf returns the texts for the field End of a Tag. They are the given ends. If one of the given ends is the empty
// text, endsOf returns nil, because a tag with such an end can end without any text.
func endsOf(ends ...string) []string {
	for _, end := range ends {
		if end == "" {
			return nil
		}
	}
	return ends
}

// readFormat reads a format. The errors name its path.
func readFormat(path string, v *tagValue) (form Form, err error) {
	if strings.Count(path, ".") > maxDepth {
		return form, fmt.Errorf("formats nest deeper than %d", maxDepth)
	}
	kind := ""
	if v != nil && v.members["type"].isSet() && json.Unmarshal(v.members["type"].raw, &kind) != nil || kind == "" {
		return form, fmt.Errorf("%s: it is not an object with a type", path)
	}
	switch kind {
	case "sequence", "or":
		return readElements(path, kind, v)
	case "tag":
		tag, err := readTag(path, v)
		return Form{Tag: tag}, err
	case "triggered_tags", "token_triggered_tags", "tags_with_separator":
		return readTags(path, kind, v)
	case "optional", "star", "plus", "repeat":
		return readRepeat(path, kind, v)
	case "dispatch", "token_dispatch":
		return readDispatch(path, kind, v)
	}
	form, err = readSimple(kind, v)
	if err != nil {
		return form, fmt.Errorf("%s: %w", path, err)
	}
	return form, nil
}

// readSimple reads a format that has no parts.
func readSimple(kind string, v *tagValue) (Form, error) {
	var text string
	switch kind {
	case "const_string":
		err := v.fields(map[string]any{"type": &kind, "value": &text})
		if text == "" {
			return Form{Sequence: []Form{}}, err
		}
		return Form{Text: text}, err
	case "json_schema":
		var style string
		var schema *tagValue
		var anyOrder bool
		err := v.fields(map[string]any{"type": &kind, "style": &style, "json_schema": &schema, "any_order": &anyOrder})
		switch {
		case err != nil:
			return Form{}, err
		case style != "" && style != "json":
			return Form{}, fmt.Errorf("the style %.100q is not supported", style)
		case anyOrder:
			return Form{}, errors.New("any_order is not supported")
		}
		return schemaForm(schema)
	case "regex":
		err := v.fields(map[string]any{"type": &kind, "pattern": &text})
		return Form{Regex: text}, err
	case "grammar":
		err := v.fields(map[string]any{"type": &kind, "grammar": &text})
		return Form{Grammar: text}, err
	case "any_text":
		f := &Free{}
		return Form{Free: f}, v.fields(map[string]any{"type": &kind, "excludes": &f.Excluded})
	case "any_tokens":
		var excluded names
		err := v.fields(map[string]any{"type": &kind, "exclude_tokens": &excluded})
		return Form{Free: &Free{Excluded: excluded.texts()}}, err
	case "token":
		name, err := mark(v)
		if name == "" && err == nil {
			err = errors.New("the token has no name")
		}
		return Form{Text: name}, err
	}
	return Form{}, fmt.Errorf("the type %.100q is not supported; supported are const_string, json_schema, regex, grammar, any_text, "+
		"any_tokens, token, sequence, or, optional, star, plus, repeat, tag, triggered_tags, token_triggered_tags, "+
		"tags_with_separator, dispatch and token_dispatch", kind)
}

func readElements(path, kind string, v *tagValue) (Form, error) {
	var elements []*tagValue
	if err := v.fields(map[string]any{"type": &kind, "elements": &elements}); err != nil {
		return Form{}, fmt.Errorf("%s: %w", path, err)
	}
	if len(elements) == 0 {
		return Form{}, fmt.Errorf("%s: it has no elements", path)
	}
	all := make([]Form, len(elements))
	for i, element := range elements {
		var err error
		if all[i], err = readFormat(fmt.Sprintf("%s.elements[%d]", path, i), element); err != nil {
			return Form{}, err
		}
	}
	if kind == "or" {
		return Form{AnyOf: all}, nil
	}
	return Form{Sequence: all}, nil
}

func readTag(path string, v *tagValue) (*Tag, error) {
	var kind string
	var begin, content, end *tagValue
	if err := v.fields(map[string]any{"type": &kind, "begin": &begin, "content": &content, "end": &end}); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	tag := &Tag{}
	var err error
	if tag.Begin, err = mark(begin); err != nil {
		return nil, fmt.Errorf("%s.begin: %w", path, err)
	}
	if end == nil || json.Unmarshal(end.raw, &tag.End) != nil {
		text, err := mark(end)
		if err != nil {
			return nil, fmt.Errorf("%s.end: %w", path, err)
		}
		tag.End = []string{text}
	}
	tag.End = endsOf(tag.End...)
	if tag.Content, err = readFormat(path+".content", content); err != nil {
		return nil, err
	}
	return tag, nil
}

// mark reads the begin or the end of a tag: a text, or the name of a token.
func mark(v *tagValue) (text string, err error) {
	if v == nil || v.members == nil {
		if v == nil || json.Unmarshal(v.raw, &text) != nil {
			return "", errors.New("it is neither a text nor a token with a name")
		}
		return text, nil
	}
	var kind string
	var token name
	err = v.fields(map[string]any{"type": &kind, "token": &token})
	if err == nil && kind != "token" {
		err = errors.New("its type is not token")
	}
	return string(token), err
}

// name is the name of a token.
type name string

type names []name

func (n *name) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, (*string)(n)) != nil {
		return fmt.Errorf("the token %.20s has no name, and numbers of tokens are not supported", data)
	}
	return nil
}

// texts returns the names as strings, for Free.Excluded and Tags.Excluded.
func (n names) texts() (all []string) {
	for _, one := range n {
		all = append(all, string(one))
	}
	return all
}

func readTags(path, kind string, v *tagValue) (Form, error) {
	t := &Tags{}
	var tags []*tagValue
	var separator string
	var triggers, excluded names
	fields := map[string]any{"type": &kind, "tags": &tags, "at_least_one": &t.AtLeastOne, "stop_after_first": &t.StopAfterFirst}
	switch kind {
	case "triggered_tags":
		fields["triggers"], fields["excludes"] = &t.Triggers, &t.Excluded
	case "token_triggered_tags":
		fields["trigger_tokens"], fields["exclude_tokens"] = &triggers, &excluded
	default:
		fields["separator"] = &separator
	}
	if err := v.fields(fields); err != nil {
		return Form{}, fmt.Errorf("%s: %w", path, err)
	}
	t.Triggers, t.Excluded = append(t.Triggers, triggers.texts()...), append(t.Excluded, excluded.texts()...)
	for i, v := range tags {
		tag, err := readTag(fmt.Sprintf("%s.tags[%d]", path, i), v)
		if err != nil {
			return Form{}, err
		}
		t.Tags = append(t.Tags, *tag)
	}
	if kind != "tags_with_separator" {
		return Form{Tags: t}, nil
	}
	return Form{Separated: &Separated{t.Tags, separator, t.AtLeastOne, t.StopAfterFirst}}, nil
}

// readRepeat reads the formats that repeat another one.
func readRepeat(path, kind string, v *tagValue) (Form, error) {
	var content *tagValue
	var least, most *int
	if err := v.fields(map[string]any{"type": &kind, "content": &content, "min": &least, "max": &most}); err != nil {
		return Form{}, fmt.Errorf("%s: %w", path, err)
	}
	r := Repeat{Max: -1}
	switch {
	case kind == "repeat" && least != nil && most != nil:
		r.Min, r.Max = *least, *most
	case kind == "repeat":
		return Form{}, fmt.Errorf("%s: min or max is missing", path)
	case least != nil || most != nil:
		return Form{}, fmt.Errorf("%s: only repeat has min and max", path)
	case kind == "optional":
		r.Max = 1
	case kind == "plus":
		r.Min = 1
	}
	if r.Max < -1 || r.Min < 0 || r.Max >= 0 && r.Max < r.Min {
		return Form{}, fmt.Errorf("%s: min is %d and max is %d; min must be 0 or more, and max at least min, or -1", path, r.Min, r.Max)
	}
	var err error
	r.Form, err = readFormat(path+".content", content)
	return Form{Repeat: &r}, err
}

// readDispatch reads the format of free text in which another format begins after a pattern or a token.
func readDispatch(path, kind string, v *tagValue) (Form, error) {
	loop := true
	var rules []*tagValue
	var excluded names
	tags := &Tags{}
	err := v.fields(map[string]any{"type": &kind, "rules": &rules, "loop": &loop, "excludes": &tags.Excluded, "exclude_tokens": &excluded})
	if err != nil {
		return Form{}, fmt.Errorf("%s: %w", path, err)
	}
	tags.Excluded, tags.StopAfterFirst = append(tags.Excluded, excluded.texts()...), !loop
	for i, rule := range rules {
		path := fmt.Sprintf("%s.rules[%d]", path, i)
		var begin name
		if len(rule.elements) != 2 {
			return Form{}, fmt.Errorf("%s: it is not a list of a text and a format", path)
		}
		if err := begin.UnmarshalJSON(rule.elements[0].raw); err != nil || begin == "" {
			return Form{}, fmt.Errorf("%s: it does not begin with a text", path)
		}
		content, err := readFormat(path+"[1]", rule.elements[1])
		if err != nil {
			return Form{}, err
		}
		tags.Triggers = append(tags.Triggers, string(begin))
		tags.Tags = append(tags.Tags, Tag{Begin: string(begin), Content: content})
	}
	return Form{Tags: tags}, nil
}
