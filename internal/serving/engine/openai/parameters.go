package openai

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"llmmemory/internal/serving/structured"
	"llmmemory/internal/serving/toolparser"
)

// maxSchemaDepth limits the depth to which allowedTypes follows nested schemas.
const maxSchemaDepth = 8

// parameterKinds has the kinds of parameters of tools, as the schemas of the tools give them. The kind decides how a
// parser converts the text of a parameter to a JSON value. It reads each schema once. It is safe for concurrent use.
type parameterKinds struct {
	tools []tool

	mutex sync.Mutex
	known map[string]map[string]toolparser.ParameterKind // by the names of the tool and of the parameter
}

func newParameterKinds(tools []tool) *parameterKinds {
	return &parameterKinds{tools: tools, known: map[string]map[string]toolparser.ParameterKind{}}
}

// kind returns the kind of a parameter of a tool.
func (k *parameterKinds) kind(name, parameter string) toolparser.ParameterKind {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	kinds, ok := k.known[name]
	if !ok {
		if i := slices.IndexFunc(k.tools, func(t tool) bool { return t.name == name }); i >= 0 {
			kinds = k.tools[i].kinds()
		}
		k.known[name] = kinds
	}
	return kinds[parameter] // JSONParameter if it is not listed
}

const (
	kindsBytes  = 64 << 10 // kinds reads so many bytes of schemas,
	kindsFactor = 16       // and so many times the bytes of the tool's schema
)

// kinds returns the kinds of the properties. It reads references again for each property that has them. If it would
// read too much, the kind of the rest is JSONParameter, for the parser as for the form.
func (t *tool) kinds() map[string]toolparser.ParameterKind {
	s := t.schema()
	s.unread = kindsBytes + kindsFactor*len(t.parameters)
	kinds := make(map[string]toolparser.ParameterKind, len(s.Properties))
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		kinds[name] = s.kind(s.Properties[name])
	}
	return kinds
}

// kind returns the kind of a parameter with the given schema, which is a part of s.
func (s *argumentSchema) kind(schema json.RawMessage) toolparser.ParameterKind {
	s.followed = map[string]bool{}
	types := s.allowedTypes(schema, 0)
	switch {
	case s.unread < 0:
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

	unread   int             // the bytes that allowedTypes may still read
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

// taggedArguments returns the form of arguments between tags that fit the tool's schema. With loose, the values can be any
// text: only the names that the schema lists and requires are obeyed.
func (t *tool) taggedArguments(tags *toolparser.Tagged, loose bool) structured.Form {
	p := &structured.Parameters{JSONSchema: t.parameters, Tags: structured.ParameterTags{Begin: tags.Parameter, Between: tags.Between(),
		NameEnd: tags.EndOfName(), End: tags.ParameterEnd, After: "\n", Strings: map[string]bool{}}}
	if loose {
		p.JSONSchema = t.schema().loosened(t.parameters, &p.Tags)
		return structured.Form{Parameters: p}
	}
	for name, kind := range t.kinds() {
		switch kind {
		case toolparser.TextParameter:
			p.Tags.Strings[name] = false
		case toolparser.TextOrNullParameter:
			p.Tags.Strings[name] = true
		}
	}
	return structured.Form{Parameters: p}
}

// loosened returns a schema that has only the names of the given one, which s is. Values can be anything. Names that cannot
// be written between the tags are not required.
func (s *argumentSchema) loosened(schema json.RawMessage, tags *structured.ParameterTags) []byte {
	text := []byte(`{"properties":{`)
	for i, name := range s.names(schema) {
		if i > 0 {
			text = append(text, ',')
		}
		shown, _ := json.Marshal(name) // a string is always JSON
		text = append(append(text, shown...), ":true"...)
	}
	required, _ := json.Marshal(slices.DeleteFunc(append([]string{}, s.Required...), func(name string) bool { return !tags.CanName(name) }))
	text = append(append(text, `},"required":`...), required...)
	if string(s.AdditionalProperties) == "false" {
		text = append(text, `,"additionalProperties":false`...)
	}
	return append(text, '}')
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
// and whether there are items or properties, and follows each reference only once. If schemas are nested too deep, or
// no more bytes may be read, the result has otherType.
func (s *argumentSchema) allowedTypes(schema json.RawMessage, depth int) (all typeSet) {
	var given struct {
		Ref               string `json:"$ref"`
		Type              any
		Enum              []any
		AnyOf, OneOf      []json.RawMessage
		Items, Properties json.RawMessage
	}
	if s.unread -= len(schema); s.unread < 0 || json.Unmarshal(schema, &given) != nil || depth > maxSchemaDepth {
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
