package jsonschema

import (
	"slices"

	"llmmemory/internal/serving/structured/automaton"
)

// negate returns the values outside a shape. For each type, these are the values that no alternative allows.
func (c *compiler) negate(s *shape, schema *value) (*shape, error) {
	out := everything()
	out.hasNull, out.hasFalse, out.hasTrue = !s.hasNull, !s.hasFalse, !s.hasTrue
	var err error
	if out.numbers, err = subtract(c, out.numbers, s.numbers, schema, notNumbers); err != nil {
		return nil, err
	}
	if out.strings, err = subtract(c, out.strings, s.strings, schema, notStrings); err != nil {
		return nil, err
	}
	if out.arrays, err = subtract(c, out.arrays, s.arrays, schema, notArrays); err != nil {
		return nil, err
	}
	out.objects, err = subtract(c, out.objects, s.objects, schema, notObjects)
	return out, err
}

// subtract returns alternatives for those values of one type that are in the list allowed but not in the list excluded.
// A value is in a list if at least one of its alternatives allows the value. The function negate returns alternatives
// for the values that a given alternative does not allow.
func subtract[T alternative[T]](c *compiler, allowed, excluded []T, schema *value, negate func(*compiler, *T, *value) ([]T, error)) ([]T, error) {
	for i := range excluded {
		negated, err := negate(c, &excluded[i], schema)
		if err != nil {
			return nil, err
		}
		if allowed, err = meet(allowed, negated, c.budget); err != nil {
			return nil, err
		}
	}
	return allowed, nil
}

func notNumbers(_ *compiler, n *numbers, schema *value) ([]numbers, error) {
	var out []numbers
	if n.listed {
		var limits []limit
		for _, r := range n.list {
			limits = append(limits, limit{r.decimal, differs, origin{schema: schema, keyword: "not"}})
		}
		return append(out, numbers{limits: limits}), nil
	}
	if n.whole {
		out = append(out, numbers{broken: true})
	}
	if n.broken {
		out = append(out, numbers{whole: true})
	}
	for _, l := range n.limits {
		if l.relation == differs {
			out = append(out, numbers{listed: true, list: []constant{{l.bound, l.bound.String()}}})
			continue
		}
		opposite := map[relation]relation{atLeast: lessThan, greaterThan: atMost, atMost: greaterThan, lessThan: atLeast}[l.relation]
		out = append(out, numbers{limits: []limit{{l.bound, opposite, l.origin.negation()}}})
	}
	for _, m := range n.multiples {
		m.negated = !m.negated
		out = append(out, numbers{multiples: []multiple{m}})
	}
	return out, nil
}

func notStrings(c *compiler, s *strings_, _ *value) ([]strings_, error) {
	var out []strings_
	if s.min > 0 {
		out = append(out, strings_{limits: limits{max: s.min - 1, maxOf: s.minOf.negation()}})
	}
	if s.max != unlimited {
		out = append(out, strings_{limits: limits{min: s.max + 1, max: unlimited, minOf: s.maxOf.negation()}})
	}
	if !s.listed && len(s.dfas) == 0 {
		return out, nil
	}
	d, err := s.form(c.budget)
	if err != nil {
		return nil, err
	}
	rest, err := automaton.Subtract(automaton.All(), d, c.budget)
	if err != nil || rest.Empty() {
		return out, err
	}
	negated := form{DFA: rest}
	if !s.listed && len(s.dfas) == 1 && s.dfas[0].name != "" {
		negated.name = "not " + s.dfas[0].name
	}
	return append(out, strings_{limits: anyNumber, dfas: []form{negated}}), nil
}

func notArrays(c *compiler, a *arrays, schema *value) ([]arrays, error) {
	var out []arrays
	by := origin{schema: schema, keyword: "not"}
	if a.unique || len(a.contains) > 0 {
		return nil, noNegation(schema, "uniqueItems or contains")
	}
	if a.min > 0 {
		out = append(out, arrays{limits: limits{max: a.min - 1, maxOf: a.minOf.negation()}})
	}
	if a.max != unlimited {
		out = append(out, arrays{limits: limits{min: a.max + 1, max: unlimited, minOf: a.maxOf.negation()}})
	}
	for _, layer := range a.layers {
		for i, item := range layer.prefix {
			for _, negated := range c.negations(item) {
				if err := c.budget.Spend(1 + i); err != nil {
					return nil, err
				}
				prefix := make([]conjunction, i+1)
				prefix[i] = negated
				out = append(out, arrays{limits: limits{min: i + 1, max: unlimited, minOf: by}, layers: []arrayLayer{{prefix: prefix}}})
			}
		}
		for _, negated := range c.negations(layer.items) {
			if len(layer.prefix) > 0 && !isNothing(layer.items) {
				return nil, noNegation(schema, "items after prefixItems")
			}
			if isNothing(layer.items) {
				out = append(out, arrays{limits: limits{min: len(layer.prefix) + 1, max: unlimited, minOf: by}})
				break
			}
			out = append(out, arrays{limits: limits{min: 1, max: unlimited, minOf: by}, contains: []conjunction{negated}})
		}
	}
	return out, nil
}

// noNegation returns the error of a schema that has keywords whose negation is not supported.
func noNegation(schema *value, keywords string) error {
	return refuse(schema, "not", "the negation of %s is not supported; not, if and a oneOf whose alternatives may overlap need it: "+
		"give each alternative of oneOf a required member with another const, or use anyOf", keywords)
}

// negation returns the origin of what the negation of a schema demands.
func (o origin) negation() origin {
	o.negated = !o.negated
	return o
}

func isNothing(all conjunction) bool {
	return slices.ContainsFunc(all, func(t term) bool {
		return !t.negated && t.schema.kind == boolFalse || t.negated && (t.schema.kind == boolTrue || t.schema.kind == object && len(t.schema.names) == 0)
	})
}

func notObjects(c *compiler, o *objects, schema *value) ([]objects, error) {
	var out []objects
	if len(o.names) > 0 {
		return nil, noNegation(schema, "propertyNames")
	}
	if o.min > 0 {
		out = append(out, objects{limits: limits{max: o.min - 1, maxOf: o.minOf.negation()}})
	}
	if o.max != unlimited {
		out = append(out, objects{limits: limits{min: o.max + 1, max: unlimited, minOf: o.maxOf.negation()}})
	}
	for _, name := range o.required {
		out = append(out, objects{limits: anyNumber, absent: []string{name}})
	}
	for _, name := range o.absent {
		out = append(out, objects{limits: anyNumber, required: []string{name}})
	}
	for _, layer := range o.layers {
		if len(layer.patterns) > 0 || len(layer.additional) > 0 {
			return nil, noNegation(schema, "patternProperties or additionalProperties")
		}
		for i, name := range layer.names {
			for _, negated := range c.negations(layer.props[i]) {
				negatedLayer := newLayer()
				negatedLayer.negated = true
				negatedLayer.add(name, negated)
				out = append(out, objects{limits: anyNumber, required: []string{name}, layers: []objectLayer{negatedLayer}})
			}
		}
	}
	return out, nil
}
