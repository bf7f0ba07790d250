package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
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
	return fields, checkNames(field, name, fields, allowed)
}

// checkNames returns an error if an object has a field that is not in allowed, and neither null nor false.
func checkNames(field, name string, fields map[string]json.RawMessage, allowed []string) error {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if v := fields[key]; !slices.Contains(allowed, key) && !IsNull(v) && string(v) != "false" {
			return invalid(field, "%s has %q, which is not supported; it may have %s.", name, key, strings.Join(allowed, ", "))
		}
	}
	return nil
}

// Read decodes value, a part of the body, into dst. The parameter field is the field of the body that contains the
// value, and errors refer to this field. The parameter name is what the text of an error calls the value, for example
// "A tool_use of message 3".
func Read(field, name string, value json.RawMessage, dst any) error {
	return decodePart(field, name, exact(value, reflect.TypeOf(dst)), dst)
}

func decodePart(field, name string, value json.RawMessage, dst any) error {
	err := json.Unmarshal(value, dst)
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
	t := reflect.TypeOf(dst).Elem()
	names := slices.Sorted(maps.Keys(jsonNames(t)))
	fields, err := Object(field, name, value, append(names, extra...)...)
	if err != nil {
		return err
	}
	return decodePart(field, name, exactObject(value, fields, t), dst)
}

// readPart decodes an object into the struct that dst points to, as Read does. It also returns the object's fields and,
// in unknown, the error of Object for a field that is not in allowed.
func readPart(field, name string, value json.RawMessage, dst any, allowed []string) (fields map[string]json.RawMessage, unknown, err error) {
	if err := decodePart(field, name, value, &fields); err != nil {
		return nil, nil, err
	}
	if fields == nil {
		return nil, invalid(field, "%s is missing.", name), nil
	}
	unknown = checkNames(field, name, fields, allowed)
	return fields, unknown, decodePart(field, name, exactObject(value, fields, reflect.TypeOf(dst).Elem()), dst)
}

// SchemaForm returns the form of JSON texts that fit a schema. The parameter field is the field of the body that
// contains the schema. Errors refer to this field.
func SchemaForm(field string, schema json.RawMessage) (*structured.Form, error) {
	if bytes.HasPrefix(bytes.TrimSpace(schema), []byte(`"`)) {
		return nil, invalid(field, "The schema in %s is a string; an object is expected.", field)
	}
	return &structured.Form{JSONSchema: schema}, nil
}

// exact changes a JSON value so that encoding/json decodes it into the type t as OpenAI and vLLM do. Names of fields
// are then case-sensitive, and 5.0 is a whole number. It changes the fields of objects inside the value as well, but
// not objects in lists.
func exact(raw json.RawMessage, t reflect.Type) json.RawMessage {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		return whole(raw)
	case reflect.Struct:
	default:
		return raw
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return raw // decoding reports what is wrong with it
	}
	return exactObject(raw, fields, t)
}

// exactObject is exact for an object with the given fields.
func exactObject(raw json.RawMessage, fields map[string]json.RawMessage, t reflect.Type) json.RawMessage {
	types := jsonNames(t)
	changed := false
	for name, value := range fields {
		if fieldType, ok := types[name]; ok {
			fields[name] = exact(value, fieldType)
			changed = changed || !bytes.Equal(fields[name], value)
			continue
		}
		for known := range types {
			if strings.EqualFold(name, known) {
				delete(fields, name)
				changed = true
			}
		}
	}
	if !changed {
		return raw
	}
	kept, err := json.Marshal(fields)
	if err != nil {
		return raw // impossible, because fields were decoded
	}
	return kept
}

// jsonNames returns the types of a struct's fields by their names in JSON.
func jsonNames(t reflect.Type) map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("json"); name != "" {
			types[name] = f.Type
		}
	}
	return types
}

// whole returns the number 5 for 5.0 or 5e0, and likewise for other whole numbers. It returns other values unchanged.
func whole(raw json.RawMessage) json.RawMessage {
	const exactly = 1 << 53 // larger numbers may have been rounded
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !bytes.ContainsAny(raw, ".eE") || v != math.Trunc(v) || math.Abs(v) >= exactly {
		return raw
	}
	return strconv.AppendInt(nil, int64(v), 10)
}
