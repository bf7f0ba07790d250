package structured

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"llmmemory/internal/serving/meter"
)

// tagValue is a value of the JSON text of a structural tag. The text is read once, however deep its formats nest.
type tagValue struct {
	raw      json.RawMessage
	members  map[string]*tagValue // nil if the value is no object, or is a schema
	elements []*tagValue          // nil if the value is no list, or is a schema
}

const tagValueBytes = 150 // about what a tagValue takes besides its text

// readTagValue reads a JSON text. It does not read what is inside a schema.
func readTagValue(data []byte, m *meter.Meter) (*tagValue, error) {
	if err := m.Spend(len(data) / 16); err != nil {
		return nil, err
	}
	if !json.Valid(data) {
		return nil, json.Unmarshal(data, new(json.RawMessage)) // says why
	}
	r := tagReader{data: data, d: json.NewDecoder(bytes.NewReader(data)), meter: m}
	r.d.UseNumber()
	return r.read()
}

type tagReader struct {
	data  []byte
	d     *json.Decoder
	open  []openValue // the objects and lists around the next token
	meter *meter.Meter
}

// openValue is an object or a list that is being read.
type openValue struct {
	value *tagValue
	start int
	name  string // of the member that is read next
	named bool   // name is set
}

func (r *tagReader) read() (*tagValue, error) {
	for {
		if err := r.meter.Keep(tagValueBytes); err != nil {
			return nil, err
		}
		if err := r.meter.Spend(1); err != nil {
			return nil, err
		}
		start := r.next()
		token, err := r.d.Token()
		if err != nil {
			return nil, err
		}
		var done *tagValue
		switch last := len(r.open) - 1; {
		case token == json.Delim('{'):
			r.open = append(r.open, openValue{value: &tagValue{members: map[string]*tagValue{}}, start: start})
			continue
		case token == json.Delim('['):
			r.open = append(r.open, openValue{value: &tagValue{elements: []*tagValue{}}, start: start})
			continue
		case token == json.Delim('}'), token == json.Delim(']'):
			done, start = r.open[last].value, r.open[last].start
			r.open = r.open[:last]
		case last >= 0 && r.open[last].value.members != nil && !r.open[last].named:
			o := &r.open[last]
			o.name, o.named = token.(string), true
			if o.name != "schema" && o.name != "json_schema" {
				continue
			}
			var schema json.RawMessage
			start = r.next()
			if err := r.d.Decode(&schema); err != nil {
				return nil, err
			}
			done = &tagValue{}
		default:
			done = &tagValue{}
		}
		done.raw = r.data[start:r.d.InputOffset()]
		if len(r.open) == 0 {
			return done, nil
		}
		r.add(done)
	}
}

// next returns the position of the next token.
func (r *tagReader) next() int {
	pos := int(r.d.InputOffset())
	for pos < len(r.data) && strings.IndexByte(" \t\r\n:,", r.data[pos]) >= 0 {
		pos++
	}
	return pos
}

// add adds a value to the object or list around it.
func (r *tagReader) add(v *tagValue) {
	o := &r.open[len(r.open)-1]
	if o.value.members == nil {
		o.value.elements = append(o.value.elements, v)
		return
	}
	o.value.members[o.name] = v
	o.named = false
}

// isSet reports whether a value is given and is not null.
func (v *tagValue) isSet() bool { return v != nil && string(v.raw) != "null" }

// fields reads the members of an object. The parameter fields has, for each member that is supported, a pointer to where
// it goes: a *tagValue, a list of them, or what json.Unmarshal accepts. Other members must be null.
func (v *tagValue) fields(fields map[string]any) error {
	if v == nil || v.members == nil {
		return errors.New("it is not a JSON object")
	}
	for _, name := range slices.Sorted(maps.Keys(v.members)) {
		value := v.members[name]
		if !value.isSet() {
			continue
		}
		field, ok := fields[name]
		switch field := field.(type) {
		case **tagValue:
			*field = value
		case *[]*tagValue:
			if value.elements == nil {
				return fmt.Errorf("the field %q is not a list", name)
			}
			*field = value.elements
		default:
			if !ok {
				return fmt.Errorf("the field %.100q is not supported", name)
			}
			if err := json.Unmarshal(value.raw, field); err != nil {
				return errors.New(strings.TrimPrefix(err.Error(), "json: "))
			}
		}
	}
	return nil
}
