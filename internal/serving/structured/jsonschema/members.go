package jsonschema

import (
	"slices"

	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/lexeme"
)

func newLayer() objectLayer { return objectLayer{index: map[string]int{}} }

func (l *objectLayer) add(name string, schemas conjunction) {
	l.index[name] = len(l.names)
	l.names = append(l.names, name)
	l.props = append(l.props, schemas)
}

// propertiesShape reads properties, patternProperties and additionalProperties, at the first of them.
func propertiesShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	if name != schema.first("properties", "patternProperties", "additionalProperties") {
		return nil, nil
	}
	layer := newLayer()
	if props := schema.get("properties"); props != nil {
		if props.kind != object {
			return nil, refuse(schema, "properties", "it is not an object")
		}
		for i, name := range props.names {
			layer.add(name, c.conjunctionOf(props.items[i]))
		}
	}
	if patterns := schema.get("patternProperties"); patterns != nil {
		if patterns.kind != object {
			return nil, refuse(schema, "patternProperties", "it is not an object")
		}
		for i, p := range patterns.names {
			d, err := c.search(schema, "patternProperties", p)
			if err != nil {
				return nil, err
			}
			layer.patterns = append(layer.patterns, pattern{d, c.conjunctionOf(patterns.items[i])})
		}
	}
	if additional := schema.get("additionalProperties"); additional != nil {
		layer.additional = c.conjunctionOf(additional)
	}
	s := everything()
	s.objects[0] = objects{limits: anyNumber, layers: []objectLayer{layer}, source: schema}
	return s, nil
}

func requiredShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	if v.kind != array {
		if c.doc.draft >= 4 {
			return nil, refuse(schema, name, "it is not a list of names")
		}
		return nil, refuse(schema, name, "required as true or false, of draft 3, is not supported")
	}
	names, err := namesIn(schema, name, v)
	if err != nil {
		return nil, err
	}
	s := everything()
	s.objects[0].required = distinct(nil, names)
	return s, nil
}

// namesIn returns the names in a list that is, or is in, the value of a keyword.
func namesIn(schema *value, keyword string, list *value) ([]string, error) {
	names := make([]string, len(list.items))
	for i, item := range list.items {
		if item.kind != text {
			return nil, refuse(schema, keyword, "it is not a list of names")
		}
		names[i] = item.text
	}
	return names, nil
}

func propertyNamesShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	names, err := c.termShape(term{schema: v})
	if err != nil {
		return nil, err
	}
	s := everything()
	if len(names.strings) == 0 {
		s.objects[0].max, s.objects[0].maxOf = 0, origin{schema: schema, keyword: name}
		return s, nil
	}
	d := automaton.Nothing()
	for i := range names.strings {
		one, err := names.strings[i].automaton(c.budget)
		if err != nil {
			return nil, err
		}
		if d, err = automaton.Join(d, one.Untagged(), c.budget); err != nil {
			return nil, err
		}
	}
	s.objects[0].names, s.objects[0].source = []*automaton.DFA{d}, schema
	return s, nil
}

// member returns the conjunction that the value of a member must satisfy. If a limit of the meter is reached, it may
// return any conjunction; the meter keeps the error.
func (c *compiler) member(o *objects, name string) conjunction {
	if c.budget.Spend(1+len(o.absent)/copyWork+len(o.names)*len(name)/textWork) != nil || slices.Contains(o.absent, name) ||
		slices.ContainsFunc(o.names, func(d *automaton.DFA) bool { return d.Match(name) == automaton.None }) {
		return c.conjunctionOf(nothing)
	}
	var all []conjunction
	for i := range o.layers {
		layer := &o.layers[i]
		if c.budget.Spend(1+len(layer.patterns)*(1+len(name)/textWork)) != nil {
			return nil
		}
		index, listed := layer.index[name]
		if listed {
			all = append(all, layer.props[index])
		}
		matched := false
		for _, p := range layer.patterns {
			if p.dfa.Match(name) != automaton.None {
				all, matched = append(all, p.schemas), true
			}
		}
		if !listed && !matched {
			all = append(all, layer.additional)
		}
	}
	return c.merge(all...)
}

// listed returns the names that the schemas list or require: first those in layers that come from no negation, then the
// required ones, then those in the other layers.
func (o *objects) listed() []string {
	if len(o.layers) == 1 && len(o.required) == 0 {
		return o.layers[0].names
	}
	var names []string
	known := map[string]bool{}
	add := func(list []string) {
		for _, name := range list {
			if !known[name] {
				known[name] = true
				names = append(names, name)
			}
		}
	}
	for i := range o.layers {
		if !o.layers[i].negated {
			add(o.layers[i].names)
		}
	}
	add(o.required)
	for i := range o.layers {
		add(o.layers[i].names)
	}
	return names
}

// unlisted divides the names that no schema lists into kinds. If two names are of the same kind, the same schemas apply
// to the values of both.
type unlisted struct {
	plain bool           // all names are of kind 0
	dfa   *automaton.DFA // else: the kind of each name, as its tag
	kinds []conjunction
}

// exist reports whether members with unlisted names are possible.
func (u *unlisted) exist() bool {
	return (u.plain || !u.dfa.Empty()) && slices.ContainsFunc(u.kinds, func(k conjunction) bool { return !isNothing(k) })
}

// only returns the automaton of the names whose kind is alive.
func (u *unlisted) only(alive func(kind int32) bool) *automaton.DFA {
	return u.dfa.Retag(func(kind int32) int32 {
		if alive(kind) {
			return kind
		}
		return lexeme.None
	})
}

// unlisted returns the kinds of the names that are not listed.
func (c *compiler) unlisted(o *objects, listed []string) (unlisted, error) {
	var base []conjunction
	patterns := 0
	for i := range o.layers {
		base = append(base, o.layers[i].additional)
		patterns += len(o.layers[i].patterns)
	}
	if patterns == 0 && len(o.names) == 0 {
		return unlisted{plain: true, kinds: []conjunction{c.merge(base...)}}, nil
	}
	if patterns > 20 {
		return unlisted{}, refuse(o.source, "patternProperties", "more than 20 patterns in one place are not supported")
	}
	// The automaton d accepts each name. Bit i of the name's tag says whether the name matches pattern i.
	d := automaton.All()
	var err error
	bit := int32(1)
	for i := range o.layers {
		for _, p := range o.layers[i].patterns {
			patternBit := bit
			d, err = automaton.Combine(d, p.dfa, func(a, b int32) int32 {
				if a != automaton.None && b != automaton.None {
					return a | patternBit
				}
				return a
			}, c.budget)
			if err != nil {
				return unlisted{}, err
			}
			bit *= 2
		}
	}
	for _, names := range o.names {
		if d, err = automaton.Intersect(d, names, c.budget); err != nil {
			return unlisted{}, err
		}
	}
	texts, err := automaton.Texts(append(slices.Clone(listed), o.absent...), c.budget)
	if err != nil {
		return unlisted{}, err
	}
	if d, err = automaton.Subtract(d, texts, c.budget); err != nil {
		return unlisted{}, err
	}
	return c.kinds(o, d), nil
}

// kinds numbers the sets of patterns that names match.
func (c *compiler) kinds(o *objects, d *automaton.DFA) unlisted {
	u := unlisted{}
	ids := map[int32]int32{}
	u.dfa = d.Retag(func(bits int32) int32 {
		id, ok := ids[bits]
		if !ok {
			id = int32(len(u.kinds))
			ids[bits] = id
			var all []conjunction
			rest := bits
			for i := range o.layers {
				matched := false
				for _, p := range o.layers[i].patterns {
					if rest&1 == 1 {
						all, matched = append(all, p.schemas), true
					}
					rest >>= 1
				}
				if !matched {
					all = append(all, o.layers[i].additional)
				}
			}
			u.kinds = append(u.kinds, c.merge(all...))
		}
		return id
	})
	return u
}
