package jsonschema

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// value is a JSON value of a schema. Objects keep the order of their members.
type value struct {
	kind   kind
	text   string // of a string, or a number as written
	items  []*value
	names  []string // of the members, whose values are items
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
)

// read reads a JSON text.
func read(source []byte) (*value, error) {
	if len(source) > maxBytes {
		return nil, fmt.Errorf("the schema has %d bytes, more than %d", len(source), maxBytes)
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
	known := map[string]int{}
	for d.More() {
		name := strconv.Itoa(len(v.items))
		if v.kind == object {
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
		if i, ok := known[name]; ok && v.kind == object {
			v.items[i] = item
			continue
		}
		known[name] = len(v.items)
		v.items = append(v.items, item)
		if v.kind == object {
			v.names = append(v.names, name)
		}
	}
	_, err := d.Token()
	return err
}

// get returns a member, or nil.
func (v *value) get(name string) *value {
	if i := slices.Index(v.names, name); i >= 0 {
		return v.items[i]
	}
	return nil
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
	f, err := strconv.ParseFloat(v.text, 64)
	if err != nil || f < 0 || f != math.Floor(f) {
		return 0, false
	}
	return int(min(f, 1e12)), true
}
