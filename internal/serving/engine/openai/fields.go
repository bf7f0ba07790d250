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

// Object returns the fields of an object that is in a field. It may only have the given names; others may be null or false.
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

// Read decodes a value that is in a field. Its errors name the value of a wrong type.
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

// lowered returns the name of a value as it is inside a sentence.
func lowered(name string) string { return strings.ToLower(name[:1]) + name[1:] }

// ReadObject is Read for an object. to points to a struct. The object may only have the fields of to and those in more;
// others may be null or false.
func ReadObject(field, name string, value json.RawMessage, to any, more ...string) error {
	names := slices.Sorted(maps.Keys(jsonNames(reflect.TypeOf(to).Elem())))
	if _, err := Object(field, name, value, append(names, more...)...); err != nil {
		return err
	}
	return Read(field, name, value, to)
}

// SchemaForm returns the form of a JSON text that a schema allows.
func SchemaForm(field string, schema json.RawMessage) (*structured.Form, error) {
	if bytes.HasPrefix(bytes.TrimSpace(schema), []byte(`"`)) {
		return nil, invalid(field, "The schema in %s is a string; an object is expected.", field)
	}
	return &structured.Form{JSONSchema: schema}, nil
}
