package jsonschema

import "slices"

func refShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	if v.kind != text {
		return nil, refuse(schema, name, "it is not a text")
	}
	to, ok := c.doc.find(schema, v.text)
	if !ok {
		return nil, refuse(schema, name, "%q is not in the schema", v.text)
	}
	return c.termShape(term{schema: to})
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
	return c.either(slices.Collect(slices.Chunk(list, 1))...)
}

// either returns the values that any of the conjunctions allows.
func (c *compiler) either(all ...conjunction) (*shape, error) {
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
	beside := c.typeBeside(schema)
	for i := range list {
		for j := range i {
			apart, err := c.knownEmpty(c.and(list[i:i+1], list[j:j+1], beside))
			if err != nil {
				return nil, err
			}
			if !apart {
				all[i] = c.and(all[i], conjunction{{list[j].schema, true}})
				all[j] = c.and(all[j], conjunction{{list[i].schema, true}})
			}
		}
	}
	return c.either(all...)
}

// typeBeside returns a conjunction of one schema, which has only one keyword of the given schema: type or, if
// there is no type, enum. With it, oneOfShape finds that alternatives of other types allow no value.
func (c *compiler) typeBeside(schema *value) conjunction {
	for _, name := range []string{"type", "enum"} {
		if v := schema.get(name); v != nil {
			only := &value{kind: object, names: []string{name}, items: []*value{v}, parent: schema.parent, key: schema.key}
			return conjunction{{schema: only}}
		}
	}
	return nil
}

func notShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	return c.termShape(term{v, true})
}

// ifShape returns two alternatives. The values of the first satisfy if and then. The values of the second do not
// satisfy if, but satisfy else.
func ifShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	then, otherwise := schema.get("then"), schema.get("else")
	if then == nil && otherwise == nil || c.doc.draft < 7 {
		return nil, nil
	}
	yes, no := conjunction{{schema: v}}, conjunction{{v, true}}
	if then != nil {
		yes = c.and(yes, c.just(then))
	}
	if otherwise != nil {
		no = c.and(no, c.just(otherwise))
	}
	return c.either(yes, no)
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
		without, with := everything(), everything()
		without.objects[0].absent = []string{member}
		with.objects[0].required = []string{member}
		item := v.items[i]
		var err error
		switch {
		case item.kind == text && name == "dependencies":
			with.objects[0].required = appendNew(with.objects[0].required, item.text)
		case item.kind == array && name != "dependentSchemas":
			for _, needed := range item.items {
				with.objects[0].required = appendNew(with.objects[0].required, needed.text)
			}
		case name != "dependentRequired":
			then, err := c.termShape(term{schema: item})
			if err != nil {
				return nil, err
			}
			if with, err = intersect(with, then, c.budget); err != nil {
				return nil, err
			}
		default:
			return nil, refuse(schema, name, "it is not a map of lists")
		}
		either := everything()
		either.objects = append(without.objects, with.objects...)
		if s, err = intersect(s, either, c.budget); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func appendNew(list []string, item string) []string {
	if slices.Contains(list, item) {
		return list
	}
	return append(list, item)
}
