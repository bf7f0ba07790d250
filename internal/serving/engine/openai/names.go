package openai

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
)

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
