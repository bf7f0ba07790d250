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

// Object returns the fields of value, which must be an object. Fields other than names must be null or false. In
// errors, field is the field of the body that contains the object, and name denotes the object.
func Object(field, name string, value json.RawMessage, names ...string) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if IsNull(value) {
		return nil, invalid(field, "%s is missing.", name)
	}
	if json.Unmarshal(value, &fields) != nil {
		return nil, invalid(field, "%s is not a JSON object.", name)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if v := fields[key]; !slices.Contains(names, key) && !IsNull(v) && string(v) != "false" {
			return nil, invalid(field, "%s has %q, which is not supported; it may have %s.", name, key, strings.Join(names, ", "))
		}
	}
	return fields, nil
}

// Read decodes a value inside a field of the body. In errors, field is that field, and name denotes the value.
func Read(field, name string, value json.RawMessage, to any) error {
	err := json.Unmarshal(exact(value, reflect.TypeOf(to)), to)
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

// ReadObject decodes an object into the struct to which to points, as Read does. Fields other than those of the struct
// and those in more must be null or false.
func ReadObject(field, name string, value json.RawMessage, to any, more ...string) error {
	names := slices.Sorted(maps.Keys(jsonNames(reflect.TypeOf(to).Elem())))
	if _, err := Object(field, name, value, append(names, more...)...); err != nil {
		return err
	}
	return Read(field, name, value, to)
}

// SchemaForm returns the form of JSON texts that fit a schema. field is the field of the body for errors.
func SchemaForm(field string, schema json.RawMessage) (*structured.Form, error) {
	if bytes.HasPrefix(bytes.TrimSpace(schema), []byte(`"`)) {
		return nil, invalid(field, "The schema in %s is a string; an object is expected.", field)
	}
	return &structured.Form{JSONSchema: schema}, nil
}
