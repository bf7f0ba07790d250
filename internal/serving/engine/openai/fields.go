package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"llmmemory/internal/serving/structured"
)

// IsNull reports whether a value is missing or null.
func IsNull(value json.RawMessage) bool {
	text := string(bytes.TrimSpace(value))
	return text == "" || text == "null"
}

// Object returns the fields of the JSON object value. Fields that are not in allowed must be null or false. The
// parameter field is the field of the body that contains the object, and errors refer to this field. The parameter
// name is what the text of an error calls the object, for example "A tool_use of message 3".
func Object(field, name string, value json.RawMessage, allowed ...string) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if IsNull(value) {
		return nil, invalid(field, "%s is missing.", name)
	}
	if json.Unmarshal(value, &fields) != nil {
		return nil, invalid(field, "%s is not a JSON object.", name)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if v := fields[key]; !slices.Contains(allowed, key) && !IsNull(v) && string(v) != "false" {
			return nil, invalid(field, "%s has %q, which is not supported; it may have %s.", name, key, strings.Join(allowed, ", "))
		}
	}
	return fields, nil
}

// Read decodes value, a part of the body, into dst. The parameter field is the field of the body that contains the
// value, and errors refer to this field. The parameter name is what the text of an error calls the value, for example
// "A tool_use of message 3".
func Read(field, name string, value json.RawMessage, dst any) error {
	err := json.Unmarshal(exact(value, reflect.TypeOf(dst)), dst)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &wrong):
		return invalid(field, "%s cannot be read: %v.", name, err)
	case wrong.Field == "":
		return invalid(field, "%s is a JSON %s; %s is expected.", name, wrong.Value, kindName(wrong))
	}
	return invalid(field, "In %s, %s is a JSON %s; %s is expected.", lowered(name), wrong.Field, wrong.Value, kindName(wrong))
}

// lowered returns a name as it is written inside a sentence.
func lowered(name string) string { return strings.ToLower(name[:1]) + name[1:] }

// ReadObject decodes an object into the struct that dst points to. The parameters field and name have the same meaning
// as in Read. Fields of the object that are neither in the struct nor in extra must be null or false.
func ReadObject(field, name string, value json.RawMessage, dst any, extra ...string) error {
	names := slices.Sorted(maps.Keys(jsonNames(reflect.TypeOf(dst).Elem())))
	if _, err := Object(field, name, value, append(names, extra...)...); err != nil {
		return err
	}
	return Read(field, name, value, dst)
}

// SchemaForm returns the form of JSON texts that fit a schema. The parameter field is the field of the body that
// contains the schema. Errors refer to this field.
func SchemaForm(field string, schema json.RawMessage) (*structured.Form, error) {
	if bytes.HasPrefix(bytes.TrimSpace(schema), []byte(`"`)) {
		return nil, invalid(field, "The schema in %s is a string; an object is expected.", field)
	}
	return &structured.Form{JSONSchema: schema}, nil
}
