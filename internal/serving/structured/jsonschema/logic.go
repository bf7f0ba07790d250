package jsonschema

import "slices"

func refShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	if v.kind != text {
		return nil, refuse(schema, name, "it is not a text")
	}
	target, err := c.doc.find(schema, v.text)
	if err != nil {
		return nil, err
	}
	if target == nil {
		return nil, refuse(schema, name, "%q is not in the schema", v.text)
	}
	return c.termShape(term{schema: target})
}

// listOf returns the schemas in a list.
func listOf(schema *value, name string, v *value) (conjunction, error) {
	if v.kind != array || len(v.items) == 0 {
		return nil, refuse(schema, name, "it is not a list of schemas")
	}
	list := make(conjunction, len(v.items))
	for i, item := range v.items {
		list[i].schema = item
	}
	return list, nil
}

func allOfShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	list, err := listOf(schema, name, v)
	if err != nil {
		return nil, err
	}
	return c.shape(list)
}

func anyOfShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	list, err := listOf(schema, name, v)
	if err != nil {
		return nil, err
	}
	return c.unionOf(slices.Collect(slices.Chunk(list, 1))...)
}

// unionOf returns the values that any of the conjunctions allows.
func (c *compiler) unionOf(all ...conjunction) (*shape, error) {
	shapes := make([]*shape, len(all))
	for i, one := range all {
		var err error
		if shapes[i], err = c.shape(one); err != nil {
			return nil, err
		}
	}
	return union(shapes...), nil
}

// oneOfShape lets each alternative exclude those that it may overlap.
func oneOfShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	list, err := listOf(schema, name, v)
	if err != nil {
		return nil, err
	}
	all := slices.Collect(slices.Chunk(list, 1))
	types := c.typeOrEnum(schema)
	for i := range list {
		for j := range i {
			disjoint, err := c.knownEmpty(c.merge(list[i:i+1], list[j:j+1], types))
			if err != nil {
				return nil, err
			}
			if !disjoint {
				all[i] = c.merge(all[i], conjunction{{list[j].schema, true}})
				all[j] = c.merge(all[j], conjunction{{list[i].schema, true}})
			}
		}
	}
	return c.unionOf(all...)
}

// typeOrEnum returns a conjunction of one new schema with a single keyword. The keyword is type if the given schema has
// it, and otherwise enum. If the schema has neither, the conjunction is empty. oneOfShape checks whether two
// alternatives of oneOf allow the same value. With the conjunction, it checks only values that the given schema's type
// or enum allows.
func (c *compiler) typeOrEnum(schema *value) conjunction {
	for _, name := range []string{"type", "enum"} {
		if v := schema.get(name); v != nil {
			subset := &value{kind: object, names: []string{name}, items: []*value{v}, parent: schema.parent, key: schema.key}
			return conjunction{{schema: subset}}
		}
	}
	return nil
}

func notShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	return c.termShape(term{v, true})
}

// ifShape returns the union of two shapes. The values of the first satisfy the schemas of the keywords "if" and "then".
// The values of the second do not satisfy the schema of "if", but satisfy that of "else". A missing schema is satisfied
// by every value. If both "then" and "else" are missing, or the draft is below 7, ifShape returns nil.
func ifShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	thenSchema, elseSchema := schema.get("then"), schema.get("else")
	if thenSchema == nil && elseSchema == nil || c.doc.draft < 7 {
		return nil, nil
	}
	matching, failing := conjunction{{schema: v}}, conjunction{{v, true}}
	if thenSchema != nil {
		matching = c.merge(matching, c.conjunctionOf(thenSchema))
	}
	if elseSchema != nil {
		failing = c.merge(failing, c.conjunctionOf(elseSchema))
	}
	return c.unionOf(matching, failing)
}

// dependentShape evaluates dependentRequired, dependentSchemas and dependencies. Each member named by such a keyword
// leads to two alternatives: objects without the member, and objects with the member that satisfy the keyword's
// demands.
func dependentShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	if v.kind != object {
		return nil, refuse(schema, name, "it is not an object")
	}
	s := everything()
	for i, member := range v.names {
		absent, present := everything(), everything()
		absent.objects[0].absent = []string{member}
		present.objects[0].required = []string{member}
		item := v.items[i]
		var err error
		switch {
		case item.kind == text && name == "dependencies":
			present.objects[0].required = distinct([]string{member}, []string{item.text})
		case item.kind == array && name != "dependentSchemas":
			names, err := namesIn(schema, name, item)
			if err != nil {
				return nil, err
			}
			present.objects[0].required = distinct([]string{member}, names)
		case name != "dependentRequired":
			dependent, err := c.termShape(term{schema: item})
			if err != nil {
				return nil, err
			}
			if present, err = intersect(present, dependent, c.budget); err != nil {
				return nil, err
			}
		default:
			return nil, refuse(schema, name, "it is not a map of lists")
		}
		alternatives := everything()
		alternatives.objects = append(absent.objects, present.objects...)
		if s, err = intersect(s, alternatives, c.budget); err != nil {
			return nil, err
		}
	}
	return s, nil
}
