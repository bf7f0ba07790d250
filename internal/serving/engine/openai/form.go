package openai

import (
	"encoding/json"
	"strings"

	"llmmemory/internal/serving/structured"
)

// formFields are the fields that define the form of an answer. At most one of them may define one.
type formFields struct {
	ResponseFormat    json.RawMessage `json:"response_format"`
	StructuredOutputs json.RawMessage `json:"structured_outputs"` // vLLM's
	GuidedJSON        json.RawMessage `json:"guided_json"`        // vLLM's before structured_outputs
	GuidedRegex       json.RawMessage `json:"guided_regex"`
	GuidedChoice      json.RawMessage `json:"guided_choice"`
	GuidedGrammar     json.RawMessage `json:"guided_grammar"`

	compactJSON bool // JSON is compact; set by form
}

// form returns the form of an answer, and the name of the field that defines it. The form is nil if no field defines
// one.
func (f *formFields) form() (field string, form *structured.Form, err error) {
	for _, given := range []struct {
		name  string
		value json.RawMessage
		read  func(name string, value json.RawMessage) (*structured.Form, error)
	}{
		{"response_format", f.ResponseFormat, responseFormat},
		{"structured_outputs", f.StructuredOutputs, f.structuredOutputs},
		{"guided_json", f.GuidedJSON, schemaForm},
		{"guided_regex", f.GuidedRegex, regexForm},
		{"guided_choice", f.GuidedChoice, choiceForm},
		{"guided_grammar", f.GuidedGrammar, grammarForm},
	} {
		if IsNull(given.value) {
			continue
		}
		read, err := given.read(given.name, given.value)
		switch {
		case err != nil:
			return given.name, nil, err
		case read == nil && strings.HasPrefix(given.name, "guided_"):
			return given.name, nil, invalid(given.name, "%s is empty; leave it out, or give a form.", given.name)
		case read == nil:
		case form != nil:
			return given.name, nil, invalid(given.name, "%s and %s both give the form of the answer; give one of them.",
				field, given.name)
		default:
			field, form = given.name, read
		}
	}
	return field, form, nil
}

// responseFormat returns the form that OpenAI's response_format defines. llama.cpp's type json_object with a schema and
// vLLM's type structural_tag are also read.
func responseFormat(field string, value json.RawMessage) (*structured.Form, error) {
	var given struct{ Type string }
	if json.Unmarshal(value, &given) == nil && given.Type == "structural_tag" {
		return tagForm(field, value)
	}
	var format struct {
		Type       string          `json:"type"`
		JSONSchema json.RawMessage `json:"json_schema"`
		Schema     json.RawMessage `json:"schema"`
	}
	if err := ReadObject(field, field, value, &format); err != nil {
		return nil, err
	}
	kind := format.Type
	switch {
	case kind == "":
		return nil, invalid(field, "The type of response_format is missing; text, json_object, json_schema and structural_tag are known.")
	case kind != "json_object" && kind != "json_schema" && !IsNull(format.Schema):
		return nil, invalid(field, "response_format has a schema, which only the types json_object and json_schema may have.")
	case !IsNull(format.Schema) && !IsNull(format.JSONSchema):
		return nil, invalid(field, "response_format has both schema and json_schema; give one of them.")
	case kind != "json_schema" && !IsNull(format.JSONSchema):
		return nil, invalid(field, "response_format has a json_schema, which only the type json_schema may have.")
	}
	switch {
	case kind == "text":
		return nil, nil
	case !IsNull(format.Schema):
		return SchemaForm(field, format.Schema)
	case kind == "json_object":
		return &structured.Form{JSONObject: true}, nil
	case kind == "json_schema":
		return namedSchema(field, format.JSONSchema)
	}
	return nil, invalid(field, "The type of response_format is %q; text, json_object, json_schema and structural_tag are known.", kind)
}

// namedSchema reads the json_schema of OpenAI's response_format.
func namedSchema(field string, value json.RawMessage) (*structured.Form, error) {
	var given struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
		Strict      bool            `json:"strict"`
	}
	switch err := ReadObject(field, "response_format.json_schema", value, &given); {
	case err != nil:
		return nil, err
	case IsNull(given.Schema):
		return nil, invalid(field, "response_format.json_schema has no schema.")
	case given.Name == "":
		return nil, invalid(field, "response_format.json_schema has no name; OpenAI's interface and vLLM need one.")
	}
	return SchemaForm(field, given.Schema)
}

// structuredOutputs returns the form that vLLM's structured_outputs defines. disable_fallback concerns only vLLM's
// back ends and is ignored. disable_any_whitespace means that JSON has no more white space than Python's json.dumps
// writes. It also applies to the arguments of tools, and to a form that another field defines, such as
// response_format.
func (f *formFields) structuredOutputs(field string, value json.RawMessage) (form *structured.Form, err error) {
	var given struct {
		Choice        json.RawMessage `json:"choice"`
		Grammar       json.RawMessage `json:"grammar"`
		JSON          json.RawMessage `json:"json"`
		JSONObject    json.RawMessage `json:"json_object"`
		Regex         json.RawMessage `json:"regex"`
		StructuralTag json.RawMessage `json:"structural_tag"`

		DisableFallback bool `json:"disable_fallback"`
		Compact         bool `json:"disable_any_whitespace"`
	}
	if err := ReadObject(field, field, value, &given); err != nil {
		return nil, err
	}
	const names = "choice, grammar, json, json_object, regex, structural_tag"
	for _, one := range []struct {
		value json.RawMessage
		read  func(string, json.RawMessage) (*structured.Form, error)
	}{{given.Choice, choiceForm}, {given.Grammar, grammarForm}, {given.JSON, schemaForm}, {given.JSONObject, objectForm},
		{given.Regex, regexForm}, {given.StructuralTag, tagForm}} {
		if IsNull(one.value) {
			continue
		}
		read, err := one.read(field, one.value)
		switch {
		case err != nil:
			return nil, err
		case read != nil && form != nil:
			return nil, invalid(field, "structured_outputs has more than one of %s; give one of them.", names)
		case read != nil:
			form = read
		}
	}
	if f.compactJSON = given.Compact; form == nil && !f.compactJSON { // without a form, this is about the one of another field
		return nil, invalid(field, "structured_outputs gives no form; give one of %s.", names)
	}
	return form, nil
}

func objectForm(field string, value json.RawMessage) (*structured.Form, error) {
	var yes bool
	switch {
	case json.Unmarshal(value, &yes) != nil:
		return nil, invalid(field, "json_object must be true or false.")
	case !yes:
		return nil, nil
	}
	return &structured.Form{JSONObject: true}, nil
}

// schemaForm returns a Form that allows only JSON that fits the schema in value. value is the schema itself, or a
// JSON string with the text of the schema.
func schemaForm(field string, value json.RawMessage) (*structured.Form, error) {
	var text string
	if json.Unmarshal(value, &text) == nil {
		value = json.RawMessage(text)
	}
	if !json.Valid(value) {
		return nil, invalid(field, "The schema in %s is not JSON.", field)
	}
	return &structured.Form{JSONSchema: value}, nil
}

func regexForm(field string, value json.RawMessage) (*structured.Form, error) {
	return textForm(field, "regular expression", value, func(text string) *structured.Form { return &structured.Form{Regex: text} })
}

func grammarForm(field string, value json.RawMessage) (*structured.Form, error) {
	return textForm(field, "grammar", value, func(text string) *structured.Form { return &structured.Form{Grammar: text} })
}

// textForm returns the form that a text describes, or nil if the text is empty.
func textForm(field, kind string, value json.RawMessage, form func(text string) *structured.Form) (*structured.Form, error) {
	var text string
	switch {
	case json.Unmarshal(value, &text) != nil:
		return nil, invalid(field, "The %s in %s is not a string.", kind, field)
	case text == "":
		return nil, nil
	}
	return form(text), nil
}

// tagForm returns the form of a structural tag. The tag may be JSON in a string.
func tagForm(field string, value json.RawMessage) (*structured.Form, error) {
	var text string
	if json.Unmarshal(value, &text) == nil {
		value = json.RawMessage(text)
	}
	form, err := structured.StructuralTag(value)
	if err != nil {
		return nil, invalid(field, "%s cannot be obeyed: %v.", field, err)
	}
	return &form, nil
}

func choiceForm(field string, value json.RawMessage) (*structured.Form, error) {
	var choices []string
	switch {
	case json.Unmarshal(value, &choices) != nil:
		return nil, invalid(field, "The choices in %s are not a list of strings.", field)
	case len(choices) == 0:
		return nil, nil
	}
	return &structured.Form{Choice: choices}, nil
}
