package jsonschema

// itemsShape reads items, prefixItems and additionalItems, at the first of them.
func itemsShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	if name != schema.first("items", "prefixItems", "additionalItems") {
		return nil, nil
	}
	var layer arrayLayer
	prefix, items := schema.get("prefixItems"), schema.get("items")
	if items != nil && items.kind == array && prefix == nil { // up to draft 2019-09
		prefix, items = items, schema.get("additionalItems")
	}
	if prefix != nil {
		if prefix.kind != array {
			return nil, refuse(schema, "prefixItems", "it is not a list of schemas")
		}
		for _, item := range prefix.items {
			layer.prefix = append(layer.prefix, c.conjunctionOf(item))
		}
	}
	if items != nil {
		if items.kind == array {
			return nil, refuse(schema, "items", "a list beside prefixItems is not supported")
		}
		layer.items = c.conjunctionOf(items)
	}
	s := everything()
	s.arrays[0].layers = []arrayLayer{layer}
	return s, nil
}

func containsShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	s := everything()
	minimum := 1
	if m := schema.get("minContains"); m != nil {
		n, ok := m.integer()
		if !ok {
			return nil, refuse(schema, "minContains", "it is not a whole number of 0 or more")
		}
		minimum = n
	}
	if schema.get("maxContains") != nil {
		return nil, refuse(schema, "maxContains", "the keyword is not supported")
	}
	switch minimum {
	case 0:
		return nil, nil
	case 1:
	default:
		return nil, refuse(schema, "minContains", "more than 1 is not supported")
	}
	s.arrays[0].min, s.arrays[0].minOf = 1, origin{schema: schema, keyword: name}
	s.arrays[0].contains = []conjunction{{{schema: v}}}
	return s, nil
}

func uniqueShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	if v.kind != boolTrue {
		return nil, nil
	}
	s := everything()
	s.arrays[0].unique, s.arrays[0].source = true, schema
	return s, nil
}

// prefix returns the number of elements at the beginning of an array whose schemas depend on the index. All elements
// after them have the same schemas.
func (a *arrays) prefix() int {
	n := 0
	for _, layer := range a.layers {
		n = max(n, len(layer.prefix))
	}
	return n
}

// element returns the conjunction that element i must satisfy. If a limit of the meter is reached, it may return any
// conjunction; the meter keeps the error.
func (c *compiler) element(a *arrays, i int) conjunction {
	if c.budget.Spend(1+len(a.layers)) != nil {
		return nil
	}
	var all []conjunction
	for _, layer := range a.layers {
		if i < len(layer.prefix) {
			all = append(all, layer.prefix[i])
		} else {
			all = append(all, layer.items)
		}
	}
	return c.merge(all...)
}
