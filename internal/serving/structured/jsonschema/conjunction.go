package jsonschema

import (
	"encoding/binary"
	"errors"
	"slices"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
)

// term is a schema that a value must satisfy or, if negated, must not satisfy.
type term struct {
	schema  *value
	negated bool
}

// conjunction is the list of terms that a value must satisfy, each listed once. An empty conjunction
// allows every value.
type conjunction []term

// compiler holds what is known of the schemas of a document.
type compiler struct {
	doc    *document
	budget *meter.Meter
	ids    map[*value]int32
	shapes map[term]*shape
	joint  map[string]*shape // of conjunctions
	open   map[term]bool     // schemas whose shape is being found
	probed map[string]bool   // conjunctions: whether they are known to be empty
	dfas   map[string]*automaton.DFA
}

func (c *compiler) id(v *value) int32 {
	id, ok := c.ids[v]
	if !ok {
		id = int32(len(c.ids))
		c.ids[v] = id
	}
	return id
}

// conjunctionOf returns the conjunction of one schema.
func (c *compiler) conjunctionOf(v *value) conjunction {
	if v.kind == boolTrue || v.kind == object && len(v.names) == 0 {
		return nil
	}
	return conjunction{{schema: v}}
}

// merge returns the conjunction of all terms. If a limit of the meter is reached, it may return any conjunction; the
// meter keeps the error.
func (c *compiler) merge(all ...conjunction) conjunction {
	var out conjunction
	for _, one := range all {
		if len(out) == 0 {
			out = one
		} else if len(one) > 0 {
			out = slices.Concat(out, one)
		}
	}
	if len(out) < 2 {
		return out
	}
	if c.budget.Spend(len(out)) != nil {
		return nil
	}
	unique := make(conjunction, 0, len(out))
	if len(out) <= fewNames {
		for _, t := range out {
			if !slices.Contains(unique, t) {
				unique = append(unique, t)
			}
		}
		return unique
	}
	known := make(map[term]bool, len(out))
	for _, t := range out {
		if !known[t] {
			known[t] = true
			unique = append(unique, t)
		}
	}
	return unique
}

// negations returns the negation of a conjunction as a list of alternatives. Each alternative is one of the terms,
// negated.
func (c *compiler) negations(all conjunction) []conjunction {
	var out []conjunction
	for _, t := range all {
		out = append(out, conjunction{{t.schema, !t.negated}})
	}
	return out
}

// key returns a string that identifies a conjunction. Conjunctions with the same terms have the same key, in whatever
// order the terms are. All others have different keys.
func (c *compiler) key(all conjunction) (string, error) {
	if err := c.budget.Spend(1 + len(all)/copyWork); err != nil {
		return "", err
	}
	ids := make([]uint32, 0, len(all))
	for _, t := range all {
		id := uint32(c.id(t.schema)) * 2
		if t.negated {
			id++
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	key := make([]byte, 0, 4*len(all))
	for _, id := range ids {
		key = binary.LittleEndian.AppendUint32(key, id)
	}
	return string(key), nil
}

// shape returns the values that a conjunction allows.
func (c *compiler) shape(all conjunction) (*shape, error) {
	if len(all) == 0 {
		return everything(), c.budget.Err()
	}
	if len(all) == 1 {
		return c.termShape(all[0])
	}
	key, err := c.key(all)
	if err != nil {
		return nil, err
	}
	if s, ok := c.joint[key]; ok {
		return s, nil
	}
	s := everything()
	for _, t := range all {
		next, err := c.termShape(t)
		if err == nil {
			s, err = c.intersect(s, next)
		}
		if err != nil {
			return nil, err
		}
	}
	c.joint[key] = s
	return s, nil
}

// manyAlternatives is the number of alternatives of objects above which those that no object satisfies are removed.
const manyAlternatives = 8

// intersect returns the values that are in both shapes. If the alternatives of objects are many, it removes those that
// demand two different constants of a required member. So an alternative for each value of such a member, as "if" and
// "then" make them, does not lead to one for each set of values.
func (c *compiler) intersect(a, b *shape) (*shape, error) {
	s, err := intersect(a, b, c.budget)
	if err != nil || len(s.objects) <= manyAlternatives {
		return s, err
	}
	kept := make([]objects, 0, len(s.objects))
	for i := range s.objects {
		empty, err := c.excludes(&s.objects[i])
		if err != nil {
			return nil, err
		}
		if !empty {
			kept = append(kept, s.objects[i])
		}
	}
	s.objects = kept
	return s, nil
}

// excludes reports whether schemas that are only a const or an enum, or the negation of one, leave no value for a
// required member.
func (c *compiler) excludes(o *objects) (bool, error) {
	for _, name := range o.required {
		var fixed conjunction
		positive := false
		for _, t := range c.member(o, name) {
			if t.schema.fixed() {
				fixed = append(fixed, t)
				positive = positive || !t.negated
			}
		}
		if !positive || len(fixed) < 2 {
			continue
		}
		if empty, err := c.knownEmpty(fixed); err != nil || empty {
			return empty, err
		}
	}
	return false, c.budget.Err()
}

// fixed reports whether a schema is only a const or an enum of texts.
func (v *value) fixed() bool {
	if v.kind != object || len(v.names) != 1 {
		return false
	}
	item := v.items[0]
	switch v.names[0] {
	case "const":
		return item.kind == text
	case "enum":
		return item.kind == array && len(item.items) > 0 && !slices.ContainsFunc(item.items, func(one *value) bool { return one.kind != text })
	}
	return false
}

// selfReference is the error of a schema whose shape is needed while it is being found.
type selfReference struct{ error }

func (e *selfReference) Unwrap() error { return e.error }

func (c *compiler) termShape(t term) (*shape, error) {
	if s, ok := c.shapes[t]; ok {
		return s, nil
	}
	if c.open[t] {
		return nil, &selfReference{refuse(t.schema, "$ref", "the schema refers to itself before it says anything of a value")}
	}
	c.open[t] = true
	defer delete(c.open, t)
	if err := c.enter(t.schema, "schemas that are parts of one another or refer to one another"); err != nil {
		return nil, err
	}
	defer c.budget.Leave()
	if err := c.budget.Spend(alternativeWork); err != nil {
		return nil, err
	}
	var s *shape
	var err error
	if t.negated {
		var positive *shape
		if positive, err = c.termShape(term{t.schema, false}); err == nil {
			s, err = c.negate(positive, t.schema)
		}
	} else {
		s, err = c.schemaShape(t.schema)
	}
	if err != nil {
		return nil, err
	}
	c.shapes[t] = s
	return s, nil
}

// knownEmpty reports whether a conjunction is known to allow no value, for instance because a required member
// or element allows none. A recursive schema leads back to a conjunction that is still being examined. For such a
// conjunction, knownEmpty returns false. It also ignores each term whose shape depends on one that is still being found.
func (c *compiler) knownEmpty(all conjunction) (bool, error) {
	if len(all) == 0 {
		return false, c.budget.Err()
	}
	key, err := c.key(all)
	if err != nil {
		return false, err
	}
	if empty, ok := c.probed[key]; ok {
		return empty, nil
	}
	c.probed[key] = false // while it is under way
	if err := c.enter(all[0].schema, "required members and elements in one another"); err != nil {
		return false, err
	}
	defer c.budget.Leave()
	s, err := c.shape(all)
	if self := (*selfReference)(nil); errors.As(err, &self) {
		s, err = c.foundShape(all)
	}
	if err != nil {
		return false, err
	}
	empty, err := c.emptyShape(s)
	if err == nil {
		c.probed[key] = empty
	}
	return empty, err
}

// foundShape returns the values that satisfy those terms whose shape does not depend on one that is still being found.
func (c *compiler) foundShape(all conjunction) (*shape, error) {
	s := everything()
	for _, t := range all {
		next, err := c.termShape(t)
		if self := (*selfReference)(nil); errors.As(err, &self) {
			continue
		}
		if err == nil {
			s, err = c.intersect(s, next)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (c *compiler) emptyShape(s *shape) (bool, error) {
	if s.hasNull || s.hasFalse || s.hasTrue {
		return false, nil
	}
	for i := range s.numbers {
		if d, err := s.numbers[i].automaton(c.budget); err != nil || !d.Empty() {
			return false, err
		}
	}
	for i := range s.strings {
		if s.strings[i].listed || len(s.strings[i].dfas) == 0 { // the list is not empty, and min is at most max
			return false, nil
		}
		if d, err := s.strings[i].texts(c.budget); err != nil || !d.Empty() {
			return false, err
		}
	}
	for _, a := range s.arrays {
		if empty, err := c.emptyArrays(&a); err != nil || !empty {
			return false, err
		}
	}
	for _, o := range s.objects {
		if empty, err := c.emptyObjects(&o); err != nil || !empty {
			return false, err
		}
	}
	return true, nil
}

func (c *compiler) emptyArrays(a *arrays) (bool, error) {
	for i := range min(a.min, a.prefix()+1) {
		if empty, err := c.knownEmpty(c.element(a, i)); err != nil || empty {
			return empty, err
		}
	}
	return false, nil
}

func (c *compiler) emptyObjects(o *objects) (bool, error) {
	for _, name := range o.required {
		if empty, err := c.knownEmpty(c.member(o, name)); err != nil || empty {
			return empty, err
		}
	}
	return false, nil
}
