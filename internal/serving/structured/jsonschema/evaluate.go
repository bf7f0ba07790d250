package jsonschema

import (
	"strings"

	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/regex"
)

// schemaShape returns the values that a schema allows.
func (c *compiler) schemaShape(v *value) (*shape, error) {
	switch v.kind {
	case boolTrue:
		return everything(), nil
	case boolFalse:
		return &shape{}, nil
	case object:
	default:
		return nil, refuse(v, "schema", "a schema is an object, true or false")
	}
	s := everything()
	if c.doc.draft <= 7 {
		if ref := v.get("$ref"); ref != nil { // what is beside it is ignored
			return refShape(c, v, "$ref", ref)
		}
	}
	// The keywords that limit the type are evaluated before the other keywords, because fewer alternatives then have
	// to be combined.
	for _, typed := range []bool{true, false} {
		for i, name := range v.names {
			if typed != (name == "type" || name == "enum" || name == "const") {
				continue
			}
			apply := keywordOf(name)
			if apply == nil {
				continue
			}
			before := c.budget.Spent()
			next, err := apply(c, v, name, v.items[i])
			if err == nil && next != nil {
				s, err = c.intersect(s, next)
			}
			if err != nil {
				return nil, c.blame(err, before, v, name, v.items[i].size())
			}
		}
	}
	return s, nil
}

func typeShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	list := []*value{v}
	if v.kind == array {
		list = v.items
	}
	s := &shape{}
	if n := schema.get("nullable"); n != nil && n.kind == boolTrue { // as descriptions of APIs write it
		s.hasNull = true
	}
	known := map[string]bool{}
	for _, item := range list {
		one := &shape{}
		if item.kind != text {
			return nil, refuse(schema, name, "a type is not a string")
		}
		if known[item.text] {
			continue
		}
		known[item.text] = true
		switch item.text {
		case "null":
			one.hasNull = true
		case "boolean":
			one.hasFalse, one.hasTrue = true, true
		case "number":
			one.numbers = []numbers{{}}
		case "integer":
			one.numbers = []numbers{{whole: true}}
		case "string":
			one.strings = []strings_{{limits: anyNumber}}
		case "array":
			one.arrays = []arrays{{limits: anyNumber}}
		case "object":
			one.objects = []objects{{limits: anyNumber}}
		case "any":
			if c.doc.draft > 3 {
				return nil, refuse(schema, name, "the type %q is not known", item.text)
			}
			return everything(), nil
		default:
			return nil, refuse(schema, name, "the type %q is not known", item.text)
		}
		s = union(s, one)
	}
	return s, nil
}

func enumShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	if v.kind != array {
		return nil, refuse(schema, name, "it is not a list")
	}
	all := make([]*shape, len(v.items))
	for i, item := range v.items {
		var err error
		if all[i], err = c.constant(schema, name, item); err != nil {
			return nil, err
		}
	}
	s := union(all...)
	if len(s.numbers) > 1 {
		all := numbers{listed: true}
		for _, n := range s.numbers {
			all.list = append(all.list, n.list...)
		}
		s.numbers = []numbers{all}
	}
	return s, nil
}

func constShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	return c.constant(schema, name, v)
}

// constant returns the shape of one value, which is that of a keyword or a part of it.
func (c *compiler) constant(schema *value, keyword string, v *value) (*shape, error) {
	if err := c.budget.Spend(1 + len(v.items)); err != nil {
		return nil, err
	}
	switch v.kind {
	case null:
		return &shape{hasNull: true}, nil
	case boolFalse:
		return &shape{hasFalse: true}, nil
	case boolTrue:
		return &shape{hasTrue: true}, nil
	case text:
		return &shape{strings: []strings_{{limits: anyNumber, listed: true, list: []string{v.text}}}}, nil
	case number:
		r, err := parseDecimal(v.text)
		if err != nil {
			return nil, refuse(schema, keyword, "%v", err)
		}
		return &shape{numbers: []numbers{{listed: true, list: []constant{{r, v.text}}}}}, nil
	case array:
		layer := arrayLayer{items: c.conjunctionOf(nothing)}
		for _, item := range v.items {
			layer.prefix = append(layer.prefix, c.conjunctionOf(constOf(item)))
		}
		by := origin{schema: schema, keyword: keyword}
		number := limits{min: len(v.items), max: len(v.items), minOf: by, maxOf: by}
		return &shape{arrays: []arrays{{limits: number, layers: []arrayLayer{layer}}}}, nil
	}
	o := objects{limits: limits{max: len(v.items), maxOf: origin{schema: schema, keyword: keyword}}, required: v.names}
	layer := newLayer()
	layer.additional = c.conjunctionOf(nothing)
	for i, name := range v.names {
		layer.add(name, c.conjunctionOf(constOf(v.items[i])))
	}
	o.layers = []objectLayer{layer}
	return &shape{objects: []objects{o}}, nil
}

// nothing is the schema false.
var nothing = &value{kind: boolFalse}

// constOf returns a schema that allows one value.
func constOf(v *value) *value {
	return &value{kind: object, names: []string{"const"}, items: []*value{v}, parent: v.parent, key: v.key}
}

func patternShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	d, err := c.search(schema, name, v.text)
	if err != nil {
		return nil, err
	}
	s := everything()
	s.strings = []strings_{{limits: anyNumber, dfas: []form{{d, "pattern " + v.text}}}}
	return s, nil
}

// search returns the automaton of a pattern.
func (c *compiler) search(schema *value, keyword, pattern string) (*automaton.DFA, error) {
	if d, ok := c.dfas[pattern]; ok {
		return d, nil
	}
	d, err := regex.Search(pattern, c.budget)
	switch {
	case c.budget.Err() != nil:
		return nil, c.budget.Err()
	case err != nil:
		return nil, refuse(schema, keyword, "%v", err)
	}
	c.dfas[pattern] = d
	return d, nil
}

// endless is an upper limit of characters, elements or members that no answer reaches. Such a limit is
// ignored.
const endless = 1_000_000_000

func lengthShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	n, ok := v.integer()
	if !ok {
		return nil, refuse(schema, name, "it is not a whole number of 0 or more")
	}
	if n >= endless && strings.HasPrefix(name, "max") {
		return nil, nil
	}
	s, by := everything(), origin{schema: schema, keyword: name}
	switch name {
	case "minLength":
		s.strings[0].min, s.strings[0].minOf = n, by
	case "maxLength":
		s.strings[0].max, s.strings[0].maxOf = n, by
	case "minItems":
		s.arrays[0].min, s.arrays[0].minOf = n, by
	case "maxItems":
		s.arrays[0].max, s.arrays[0].maxOf = n, by
	case "minProperties":
		s.objects[0].min, s.objects[0].minOf = n, by
	case "maxProperties":
		s.objects[0].max, s.objects[0].maxOf = n, by
	}
	return s, nil
}

func boundShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	if v.kind == boolTrue || v.kind == boolFalse { // exclusiveMinimum beside minimum, in draft 4
		return nil, nil
	}
	r, err := numberOf(schema, name, v)
	if err != nil {
		return nil, err
	}
	l := limit{bound: r, origin: origin{schema: schema, keyword: name}}
	l.relation = map[string]relation{"minimum": atLeast, "exclusiveMinimum": greaterThan, "maximum": atMost, "exclusiveMaximum": lessThan}[name]
	if e := schema.get(map[string]string{"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"}[name]); e != nil && e.kind == boolTrue {
		l.relation++
	}
	s := everything()
	s.numbers[0].limits = []limit{l}
	return s, nil
}

// numberOf returns the number that is the value of a keyword.
func numberOf(schema *value, name string, v *value) (decimal, error) {
	if v.kind != number {
		return decimal{}, refuse(schema, name, "it is not a number")
	}
	r, err := parseDecimal(v.text)
	if err != nil {
		return decimal{}, refuse(schema, name, "%v", err)
	}
	return r, nil
}

func multipleShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	r, err := numberOf(schema, name, v)
	if err != nil {
		return nil, err
	}
	if r.sign() <= 0 {
		return nil, refuse(schema, name, "it is not above 0")
	}
	s := everything()
	s.numbers[0].multiples = []multiple{{step: r, schema: schema}}
	return s, nil
}
