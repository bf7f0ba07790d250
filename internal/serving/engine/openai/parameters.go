package openai

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"llmmemory/internal/serving/structured"
	"llmmemory/internal/serving/toolparser"
)

// maxSchemaDepth limits the depth to which allowedTypes follows nested schemas.
const maxSchemaDepth = 8

// parameterKinds finds the kinds of parameters of tools, as the schemas of the tools give them. The kind decides how a
// parser converts the text of a parameter to a JSON value. It reads each schema once, and each parameter's part of it
// once. It is safe for concurrent use.
type parameterKinds struct {
	tools []tool

	mutex   sync.Mutex
	schemas map[string]*argumentSchema // by the tool's name
	known   map[[2]string]toolparser.ParameterKind
}

func newParameterKinds(tools []tool) *parameterKinds {
	return &parameterKinds{tools: tools, schemas: map[string]*argumentSchema{}, known: map[[2]string]toolparser.ParameterKind{}}
}

// kind returns the kind of a parameter of a tool.
func (k *parameterKinds) kind(name, parameter string) toolparser.ParameterKind {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	s, ok := k.schemas[name]
	if !ok {
		s = &argumentSchema{}
		if i := slices.IndexFunc(k.tools, func(t tool) bool { return t.name == name }); i >= 0 {
			s = k.tools[i].schema()
		}
		k.schemas[name] = s
	}
	schema, ok := s.Properties[parameter]
	if !ok { // not kept, because the model may write any name
		return toolparser.JSONParameter
	}
	kind, ok := k.known[[2]string{name, parameter}]
	if !ok {
		kind = s.kind(schema)
		k.known[[2]string{name, parameter}] = kind
	}
	return kind
}

// kind returns the kind of a parameter with the given schema, which is a part of s.
func (s *argumentSchema) kind(schema json.RawMessage) toolparser.ParameterKind {
	s.followed = map[string]bool{}
	switch types := s.allowedTypes(schema, 0); {
	case types&structureType != 0:
		return toolparser.StructureParameter
	case types == textType:
		return toolparser.TextParameter
	case types == textType|nullType:
		return toolparser.TextOrNullParameter
	}
	return toolparser.JSONParameter
}

// An argumentSchema is the schema of the arguments of a tool.
type argumentSchema struct {
	Properties  map[string]json.RawMessage
	Required    []string
	Defs        map[string]json.RawMessage `json:"$defs"`
	Definitions map[string]json.RawMessage

	AdditionalProperties json.RawMessage

	followed map[string]bool // the references that allowedTypes has followed
}

// schema reads the tool's schema. If a keyword that it reads has a value of the wrong type, the result is empty.
func (t *tool) schema() *argumentSchema {
	s := &argumentSchema{}
	if json.Unmarshal(t.parameters, s) != nil {
		return &argumentSchema{}
	}
	return s
}

// names returns the names of the properties, in the order of the schema, and then the other required names. Properties
// that are no object have no names.
func (s *argumentSchema) names(schema json.RawMessage) []string {
	var ordered struct{ Properties json.RawMessage }
	if json.Unmarshal(schema, &ordered) != nil {
		return nil
	}
	var names []string
	known := map[string]bool{}
	add := func(name string) {
		if !known[name] {
			known[name] = true
			names = append(names, name)
		}
	}
	d := json.NewDecoder(bytes.NewReader(ordered.Properties))
	if brace, err := d.Token(); err == nil && brace == json.Delim('{') {
		for d.More() {
			name, err := d.Token()
			var value json.RawMessage
			if err != nil || d.Decode(&value) != nil {
				break
			}
			add(name.(string))
		}
	}
	for _, name := range s.Required {
		add(name)
	}
	return names
}

// taggedArguments returns the form of arguments between tags. If the tool's schema lists properties or required names,
// only these can be parameters. They come in any order if none is required. Otherwise they come in the order of the
// schema, as the members of JSON objects do, and each comes once if it is required, and at most once if not. The values
// can be any text.
func (t *tool) taggedArguments(tags *toolparser.Tagged) structured.Form {
	s := t.schema()
	parameter := func(begin string) structured.Tag {
		return structured.Tag{Begin: begin, Content: anyText, End: []string{tags.ParameterEnd + "\n"}}
	}
	names := s.names(t.parameters)
	required := make(map[string]bool, len(s.Required))
	for _, name := range s.Required {
		required[name] = true
	}
	ordered := structured.Form{Sequence: []structured.Form{}}
	anyOrder := &structured.Separated{}
	for _, name := range names {
		tag := parameter(tags.Parameter + name + tags.Between())
		anyOrder.Tags = append(anyOrder.Tags, tag)
		one := structured.Form{Tag: &tag}
		if !required[name] {
			one = structured.Form{Repeat: &structured.Repeat{Form: one, Max: 1}}
		}
		ordered.Sequence = append(ordered.Sequence, one)
	}
	switch {
	case len(s.Required) > 0 || len(names) == 0 && string(s.AdditionalProperties) == "false":
		return ordered
	case len(names) == 0:
		anyOrder.Tags = []structured.Tag{parameter(tags.Parameter)}
	}
	return structured.Form{Separated: anyOrder}
}

// A typeSet says which types of JSON values a schema allows.
type typeSet uint8

const (
	textType typeSet = 1 << iota
	nullType
	structureType // lists and objects
	otherType
)

// typeOf returns the set of the type with a name of JSON Schema. A name that is nil or not known is another type.
func typeOf(name any) typeSet {
	switch name {
	case "string":
		return textType
	case "null":
		return nullType
	case "array", "object":
		return structureType
	}
	return otherType
}

// allowedTypes returns the types of the values that a schema inside s allows. It reads $ref, type, enum, anyOf and oneOf,
// and whether there are items or properties, and follows each reference only once. If schemas are nested too deep, the
// result has otherType.
func (s *argumentSchema) allowedTypes(schema json.RawMessage, depth int) (all typeSet) {
	var given struct {
		Ref               string `json:"$ref"`
		Type              any
		Enum              []any
		AnyOf, OneOf      []json.RawMessage
		Items, Properties json.RawMessage
	}
	if json.Unmarshal(schema, &given) != nil || depth > maxSchemaDepth {
		return otherType
	}
	if given.Ref != "" {
		if s.followed[given.Ref] {
			return 0
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
		all |= s.allowedTypes(one, depth+1)
	}
	for _, value := range given.Enum {
		switch value.(type) {
		case string:
			all |= textType
		case nil:
			all |= nullType
		default:
			all |= otherType
		}
	}
	if alternatives != nil || given.Enum != nil {
		return all
	}
	names, list := given.Type.([]any)
	switch {
	case list:
	case given.Type == nil && !(IsNull(given.Items) && IsNull(given.Properties)):
		names = []any{"object"}
	default:
		names = []any{given.Type}
	}
	for _, name := range names {
		all |= typeOf(name)
	}
	return all
}
