package structured

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// StructuralTag reads a structural tag as xgrammar and vLLM define it: an object with a format, or the
// older one with structures and triggers.
func StructuralTag(data []byte) (Form, error) {
	form, err := structuralTag(data)
	if err != nil {
		return Form{}, fmt.Errorf("structural tag: %w", err)
	}
	return form, nil
}

func structuralTag(data []byte) (Form, error) {
	var given map[string]json.RawMessage
	if json.Unmarshal(data, &given) != nil {
		return Form{}, errors.New("it is not a JSON object")
	}
	if isSet(given["structures"]) {
		return olderTag(data)
	}
	var f struct {
		Type   string
		Format json.RawMessage
	}
	if err := fields(data, &f); err != nil {
		return Form{}, err
	}
	if !isSet(f.Format) {
		return Form{}, errors.New("it has neither format nor structures")
	}
	return readFormat("format", f.Format)
}

func olderTag(data []byte) (Form, error) {
	var f struct {
		Type       string
		Triggers   []string
		Structures []struct {
			Begin, End string
			Schema     json.RawMessage
		}
	}
	if err := fields(data, &f); err != nil {
		return Form{}, err
	}
	tags := &Tags{Triggers: f.Triggers}
	for i, s := range f.Structures {
		content, err := schemaForm(s.Schema)
		if err != nil {
			return Form{}, fmt.Errorf("structures[%d]: %w", i, err)
		}
		tags.Tags = append(tags.Tags, Tag{Begin: s.Begin, Content: content, End: endsOf(s.End)})
	}
	return Form{Tags: tags}, nil
}

func isSet(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

// fields decodes a JSON object into a struct. The parameter dst is a pointer to the struct. Members of the object that
// the struct has no field for must be null.
func fields(data []byte, dst any) error {
	var given map[string]json.RawMessage
	if json.Unmarshal(data, &given) != nil {
		return errors.New("it is not a JSON object")
	}
	for name, value := range given {
		if !isSet(value) {
			delete(given, name)
		}
	}
	data, err := json.Marshal(given)
	if err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(dst); err != nil {
		text := strings.TrimPrefix(err.Error(), "json: ")
		if name, unknown := strings.CutPrefix(text, "unknown field "); unknown {
			return fmt.Errorf("the field %s is not supported", name)
		}
		return errors.New(text)
	}
	return nil
}

// schemaForm returns the form of a schema. The schema may be a string that contains JSON. If it is missing,
// any JSON value is allowed.
func schemaForm(schema json.RawMessage) (Form, error) {
	if !isSet(schema) {
		schema = json.RawMessage("true")
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
func readFormat(path string, data json.RawMessage) (form Form, err error) {
	if strings.Count(path, ".") > maxDepth {
		return form, fmt.Errorf("formats nest deeper than %d", maxDepth)
	}
	var f struct{ Type string }
	if err := json.Unmarshal(data, &f); err != nil || f.Type == "" {
		return form, fmt.Errorf("%s: it is not an object with a type", path)
	}
	switch f.Type {
	case "sequence", "or":
		return readElements(path, f.Type, data)
	case "tag":
		tag, err := readTag(path, data)
		return Form{Tag: tag}, err
	case "triggered_tags", "token_triggered_tags", "tags_with_separator":
		return readTags(path, f.Type, data)
	case "optional", "star", "plus", "repeat":
		return readRepeat(path, f.Type, data)
	case "dispatch", "token_dispatch":
		return readDispatch(path, f.Type, data)
	}
	form, err = readSimple(f.Type, data)
	if err != nil {
		return form, fmt.Errorf("%s: %w", path, err)
	}
	return form, nil
}

// readSimple reads a format that has no parts.
func readSimple(kind string, data json.RawMessage) (Form, error) {
	switch kind {
	case "const_string":
		var f struct{ Type, Value string }
		err := fields(data, &f)
		if f.Value == "" {
			return Form{Sequence: []Form{}}, err
		}
		return Form{Text: f.Value}, err
	case "json_schema":
		var f struct {
			Type, Style string
			JSONSchema  json.RawMessage `json:"json_schema"`
			AnyOrder    bool            `json:"any_order"`
		}
		err := fields(data, &f)
		switch {
		case err != nil:
			return Form{}, err
		case f.Style != "" && f.Style != "json":
			return Form{}, fmt.Errorf("the style %q is not supported", f.Style)
		case f.AnyOrder:
			return Form{}, errors.New("any_order is not supported")
		}
		return schemaForm(f.JSONSchema)
	case "regex":
		var f struct{ Type, Pattern string }
		err := fields(data, &f)
		return Form{Regex: f.Pattern}, err
	case "grammar":
		var f struct{ Type, Grammar string }
		err := fields(data, &f)
		return Form{Grammar: f.Grammar}, err
	case "any_text":
		var f struct {
			Type     string
			Excludes []string
		}
		err := fields(data, &f)
		return Form{Free: &Free{Excluded: f.Excludes}}, err
	case "any_tokens":
		var f struct {
			Type          string
			ExcludeTokens names `json:"exclude_tokens"`
		}
		err := fields(data, &f)
		return Form{Free: &Free{Excluded: f.ExcludeTokens.texts()}}, err
	case "token":
		name, err := mark(data)
		if name == "" && err == nil {
			err = errors.New("the token has no name")
		}
		return Form{Text: name}, err
	}
	return Form{}, fmt.Errorf("the type %q is not supported; supported are const_string, json_schema, regex, grammar, any_text, "+
		"any_tokens, token, sequence, or, optional, star, plus, repeat, tag, triggered_tags, token_triggered_tags, "+
		"tags_with_separator, dispatch and token_dispatch", kind)
}

func readElements(path, kind string, data json.RawMessage) (Form, error) {
	var f struct {
		Type     string
		Elements []json.RawMessage
	}
	if err := fields(data, &f); err != nil {
		return Form{}, fmt.Errorf("%s: %w", path, err)
	}
	if len(f.Elements) == 0 {
		return Form{}, fmt.Errorf("%s: it has no elements", path)
	}
	all := make([]Form, len(f.Elements))
	for i, element := range f.Elements {
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

func readTag(path string, data json.RawMessage) (*Tag, error) {
	var f struct {
		Type                string
		Begin, Content, End json.RawMessage
	}
	if err := fields(data, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	begin, err := mark(f.Begin)
	if err != nil {
		return nil, fmt.Errorf("%s.begin: %w", path, err)
	}
	tag := &Tag{Begin: begin}
	if json.Unmarshal(f.End, &tag.End) != nil {
		end, err := mark(f.End)
		if err != nil {
			return nil, fmt.Errorf("%s.end: %w", path, err)
		}
		tag.End = []string{end}
	}
	tag.End = endsOf(tag.End...)
	if tag.Content, err = readFormat(path+".content", f.Content); err != nil {
		return nil, err
	}
	return tag, nil
}

// mark reads the begin or the end of a tag: a text, or the name of a token.
func mark(data json.RawMessage) (text string, err error) {
	if json.Unmarshal(data, &text) == nil {
		return text, nil
	}
	var token struct {
		Type  string
		Token name
	}
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return "", errors.New("it is neither a text nor a token with a name")
	}
	err = fields(data, &token)
	if err == nil && token.Type != "token" {
		err = errors.New("its type is not token")
	}
	return string(token.Token), err
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

func readTags(path, kind string, data json.RawMessage) (Form, error) {
	type flags struct {
		Type           string
		Tags           []json.RawMessage
		AtLeastOne     bool `json:"at_least_one"`
		StopAfterFirst bool `json:"stop_after_first"`
	}
	var f struct {
		flags
		Triggers, Excludes []string
	}
	var k struct {
		flags
		TriggerTokens names `json:"trigger_tokens"`
		ExcludeTokens names `json:"exclude_tokens"`
	}
	var s struct {
		flags
		Separator string
	}
	var err error
	switch kind {
	case "triggered_tags":
		err = fields(data, &f)
	case "token_triggered_tags":
		err = fields(data, &k)
		f.flags, f.Triggers, f.Excludes = k.flags, k.TriggerTokens.texts(), k.ExcludeTokens.texts()
	default:
		err = fields(data, &s)
		f.flags = s.flags
	}
	if err != nil {
		return Form{}, fmt.Errorf("%s: %w", path, err)
	}
	tags := make([]Tag, len(f.Tags))
	for i, data := range f.Tags {
		tag, err := readTag(fmt.Sprintf("%s.tags[%d]", path, i), data)
		if err != nil {
			return Form{}, err
		}
		tags[i] = *tag
	}
	if kind != "tags_with_separator" {
		return Form{Tags: &Tags{f.Triggers, tags, f.Excludes, f.AtLeastOne, f.StopAfterFirst}}, nil
	}
	return Form{Separated: &Separated{tags, s.Separator, f.AtLeastOne, f.StopAfterFirst}}, nil
}
