package openai

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"llmmemory/internal/serving/structured"
	"llmmemory/internal/serving/toolparser"
)

// maxSchemaDepth limits the depth to which allowedTypes follows nested schemas.
const maxSchemaDepth = 8

// parameterKind returns the kind of a parameter of a tool, as the tool's schema gives it. The kind decides how a parser
// converts the text of the parameter to a JSON value.
func (c *Chat) parameterKind(name, parameter string) toolparser.ParameterKind {
	s := argumentSchema{followed: map[string]bool{}}
	for _, t := range c.tools {
		if t.name == name && json.Unmarshal(t.parameters, &s) == nil {
			break
		}
	}
	switch text, null, other := s.allowedTypes(s.Properties[parameter], 0); {
	case !text || other:
		return toolparser.JSONParameter
	case null:
		return toolparser.TextOrNullParameter
	}
	return toolparser.TextParameter
}

// An argumentSchema is the schema of the arguments of a tool.
type argumentSchema struct {
	Properties  map[string]json.RawMessage
	Defs        map[string]json.RawMessage `json:"$defs"`
	Definitions map[string]json.RawMessage

	AdditionalProperties json.RawMessage

	followed map[string]bool // the references that allowedTypes has followed
}

// taggedArguments returns the form of arguments between tags. If the tool's schema lists properties, only
// these can be parameters. The values can be any text.
func (t *tool) taggedArguments(tags *toolparser.Tagged) structured.Form {
	var s argumentSchema
	if json.Unmarshal(t.parameters, &s) != nil {
		return anyText
	}
	begins := slices.Sorted(maps.Keys(s.Properties))
	switch {
	case len(begins) > 0:
		for i, name := range begins {
			begins[i] = tags.Parameter + name + ">\n"
		}
	case string(s.AdditionalProperties) == "false":
		return structured.Form{Sequence: []structured.Form{}}
	default:
		begins = []string{tags.Parameter}
	}
	all := &structured.Separated{}
	for _, begin := range begins {
		all.Tags = append(all.Tags, structured.Tag{Begin: begin, Content: anyText, End: []string{tags.ParameterEnd + "\n"}})
	}
	return structured.Form{Separated: all}
}

// allowedTypes reports which values a schema inside s allows: text is true if it allows strings, null if it allows
// null, and other if it allows other values. allowedTypes reads $ref, type, enum, anyOf and oneOf, and follows each
// reference only once. If schemas are nested too deep, other is true.
func (s *argumentSchema) allowedTypes(schema json.RawMessage, depth int) (text, null, other bool) {
	var given struct {
		Ref          string `json:"$ref"`
		Type         any
		Enum         []any
		AnyOf, OneOf []json.RawMessage
	}
	if json.Unmarshal(schema, &given) != nil || depth > maxSchemaDepth {
		return false, false, true
	}
	if given.Ref != "" {
		if s.followed[given.Ref] {
			return false, false, false
		}
		s.followed[given.Ref] = true
	}
	alternatives := append(given.AnyOf, given.OneOf...)
	if name, ok := strings.CutPrefix(given.Ref, "#/$defs/"); ok {
		alternatives = append(alternatives, s.Defs[name])
	} else if name, ok := strings.CutPrefix(given.Ref, "#/definitions/"); ok {
		alternatives = append(alternatives, s.Definitions[name])
	}
	for _, one := range alternatives {
		x, y, z := s.allowedTypes(one, depth+1)
		text, null, other = text || x, null || y, other || z
	}
	for _, value := range given.Enum {
		_, isText := value.(string)
		text, null, other = text || isText, null || value == nil, other || !isText && value != nil
	}
	if alternatives != nil || given.Enum != nil {
		return text, null, other
	}
	names, list := given.Type.([]any)
	if !list {
		names = []any{given.Type}
	}
	for _, name := range names {
		text, null, other = text || name == "string", null || name == "null", other || name != "string" && name != "null"
	}
	return text, null, other
}
