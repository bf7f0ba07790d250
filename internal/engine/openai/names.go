package openai

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// exactNames leaves out the fields of a body whose names differ from those of a struct in nothing but
// case. encoding/json would take them; OpenAI and vLLM have no such fields. Objects in the body
// are seen to likewise, those in lists are not.
func exactNames(raw json.RawMessage, t reflect.Type) json.RawMessage {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return raw
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return raw // what is wrong with it is said when it is decoded
	}
	types := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("json"); name != "" {
			types[name] = f.Type
		}
	}
	changed := false
	for name, value := range fields {
		if inside, ok := types[name]; ok {
			fields[name] = exactNames(value, inside)
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
		return raw // never: all of it was decoded
	}
	return kept
}
