package jsonschema

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"llmmemory/internal/serving/meter"
)

// value is a JSON value of a schema. Objects keep the order of their members.
type value struct {
	kind   kind
	text   string // of a string, or a number as written
	items  []*value
	names  []string       // of the members, whose values are items
	places map[string]int // of the members; nil if the object has few
	parent *value
	key    string // in the parent
}

type kind byte

const (
	null kind = iota
	boolFalse
	boolTrue
	number
	text
	array
	object
)

const (
	maxBytes = 2 << 20
	maxDepth = 256
	fewNames = 8  // members of an object that needs no index
	readWork = 64 // bytes of a schema that are read at the cost of one unit of work
)

// read reads a JSON text.
func read(source []byte, budget *meter.Meter) (*value, error) {
	if len(source) > maxBytes {
		return nil, fmt.Errorf("the schema has %d bytes, more than %d", len(source), maxBytes)
	}
	if err := budget.Spend(len(source) / readWork); err != nil {
		return nil, fmt.Errorf("the schema of %d bytes: %w", len(source), err)
	}
	d := json.NewDecoder(strings.NewReader(string(source)))
	d.UseNumber()
	v, err := readValue(d, 0)
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("the schema is not JSON: something follows the value")
	}
	return v, nil
}

func readValue(d *json.Decoder, depth int) (*value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("values nest deeper than %d", maxDepth)
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		v := &value{kind: array}
		if token == '{' {
			v.kind = object
		}
		return v, v.readItems(d, depth)
	case string:
		return &value{kind: text, text: token}, nil
	case json.Number:
		return &value{kind: number, text: string(token)}, nil
	case bool:
		if token {
			return &value{kind: boolTrue}, nil
		}
		return &value{kind: boolFalse}, nil
	}
	return &value{kind: null}, nil
}

func (v *value) readItems(d *json.Decoder, depth int) error {
	known := map[string]int{} // the places of the members
	for d.More() {
		var name string
		if v.kind == array {
			name = strconv.Itoa(len(v.items))
		} else {
			token, err := d.Token()
			if err != nil {
				return err
			}
			name = token.(string)
		}
		item, err := readValue(d, depth+1)
		if err != nil {
			return err
		}
		item.parent, item.key = v, name
		if v.kind == object {
			if i, ok := known[name]; ok {
				v.items[i] = item
				continue
			}
			known[name] = len(v.items)
			v.names = append(v.names, name)
		}
		v.items = append(v.items, item)
	}
	if len(known) > fewNames {
		v.places = known
	}
	_, err := d.Token()
	return err
}

// get returns a member, or nil.
func (v *value) get(name string) *value {
	i, ok := v.places[name]
	if v.places == nil {
		i = slices.Index(v.names, name)
		ok = i >= 0
	}
	if !ok {
		return nil
	}
	return v.items[i]
}

// first returns the member that comes first, of the given ones.
func (v *value) first(names ...string) string {
	return v.names[slices.IndexFunc(v.names, func(name string) bool { return slices.Contains(names, name) })]
}

// path returns the location of v in the schema as a JSON pointer.
func (v *value) path() string {
	if v.parent == nil {
		return ""
	}
	return v.parent.path() + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(v.key)
}

// integer returns the value of a number that is whole and not negative. For a value above 10^12 it returns
// 10^12. It returns false if v is not such a number.
func (v *value) integer() (int, bool) {
	if v.kind != number {
		return 0, false
	}
	f, err := strconv.ParseFloat(v.text, 64) // an infinite number, and an error, if the number is above the largest float64
	if err != nil && !math.IsInf(f, 1) || f < 0 || f != math.Floor(f) {
		return 0, false
	}
	return int(min(f, 1e12)), true
}
