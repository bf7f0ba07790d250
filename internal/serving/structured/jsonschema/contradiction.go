package jsonschema

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"llmmemory/internal/serving/meter"
)

// Contradiction returns an error that says why no value satisfies a schema. It names the place, and the keywords that
// contradict each other. If the search for the reason exceeds the budget, the error is meter.ErrTooLarge instead.
// The caller must know that Compile accepts the schema and that no value satisfies the schema.
func Contradiction(source []byte, budget *meter.Meter) error {
	c, root, err := newCompiler(source, budget)
	if err != nil {
		return err
	}
	return locate(c.contradiction(root), c.doc.root, "schema", fmt.Sprintf("%d bytes that no value satisfies", len(source)))
}

// demand is one requirement of a schema. It is a keyword, a group of keywords that have a meaning only together (see
// readTogether), a negated schema, or a schema that is true or false.
type demand struct {
	term         // has only these keywords, if there are any
	words string // names the keywords
}

// requiredPart is a member or an element that a value must have. An error names keyword as the reason.
type requiredPart struct{ name, keyword string }

// contradiction returns the reason why no value satisfies the conjunction all. If the reason is that a member or an
// element that the value must have cannot exist, it looks for the reason there, and so on. A value with the conjunction
// of a value around it would have to contain another value with this conjunction, without end. contradiction returns
// this as the reason.
func (c *compiler) contradiction(all conjunction) error {
	var required requiredPart
	enclosing := map[string]bool{} // the keys of the conjunctions of the values around
	for {
		key, err := c.key(all)
		if err != nil {
			return err
		}
		if enclosing[key] {
			return refuse(all[0].schema, required.keyword, "%s would have to contain such a value again, without end", required.name)
		}
		enclosing[key] = true
		demands, err := c.demands(all, map[*value]bool{}, nil)
		if err != nil {
			return err
		}
		core, err := c.core(demands)
		if err != nil {
			return err
		}
		part, inner, err := c.emptyPart(core)
		if err != nil {
			return err
		}
		if inner.name == "" {
			return c.contradictory(core, required)
		}
		all, required = part, inner
	}
}

// contradictory returns the error for demands that no value satisfies.
func (c *compiler) contradictory(core []demand, required requiredPart) error {
	core, err := c.withoutTypes(core)
	if err != nil {
		return err
	}
	reason := "no value satisfies " + [...]string{"it", "both", "them all"}[min(len(core), 3)-1]
	if required.name != "" {
		reason += ", and " + required.name + " is required"
	}
	return refuse(core[0].schema, namesOf(core), "%s", reason)
}

// namesOf names the first demands.
func namesOf(core []demand) string {
	const maxNamed = 5
	var words strings.Builder
	for i, d := range core {
		switch path := d.schema.path(); {
		case i == maxNamed:
			return words.String() + " and others"
		case i == 0:
		case path == core[0].schema.path():
			words.WriteString(" and ")
		default:
			words.WriteString(" and at " + cmp.Or(path, "/") + " ")
		}
		words.WriteString(d.words)
	}
	return words.String()
}

// withoutTypes removes the first demand for a single type if at least two demands remain. The error is clearer without
// it. For example, no value satisfies these demands:
//
//	"type": "string", "minLength": 5, "maxLength": 3
//
// The error then names only minLength and maxLength, which contradict each other for every string. The demand for the
// type integer is kept if the other demands contradict each other only for integers.
func (c *compiler) withoutTypes(core []demand) ([]demand, error) {
	for i := 0; i < len(core) && len(core) > 2; i++ {
		t := core[i].schema.get("type")
		if core[i].negated || t == nil || t.kind != text {
			continue
		}
		if t.text == "integer" {
			wider := slices.Clone(core)
			wider[i] = demandOf(&value{kind: object, names: []string{"type"}, items: []*value{{kind: text, text: "number"}}}, []string{"type"})
			if empty, err := c.empty(terms(wider)); err != nil || !empty {
				return core, err
			}
		}
		return slices.Delete(slices.Clone(core), i, i+1), nil
	}
	return core, nil
}

// readTogether are keywords that have a meaning only together.
var readTogether = [][]string{
	{"properties", "patternProperties", "additionalProperties"}, {"items", "prefixItems", "additionalItems"},
	{"contains", "minContains", "maxContains"}, {"if", "then", "else"}, {"type", "nullable"},
	{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"},
}

// demands appends the demands of all terms to out. They include the demands of a schema to which $ref points, and of the
// schemas in allOf.
func (c *compiler) demands(all conjunction, seen map[*value]bool, out []demand) ([]demand, error) {
	if err := c.budget.Enter(); err != nil {
		return nil, err
	}
	defer c.budget.Leave()
	for _, t := range all {
		switch {
		case t.negated:
			out = append(out, demand{t, "not"})
			continue
		case t.schema.kind != object:
			out = append(out, demand{t, "the schema " + t.schema.short()})
			continue
		case seen[t.schema]:
			continue
		}
		seen[t.schema] = true
		var err error
		if out, err = c.schemaDemands(t.schema, seen, out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// schemaDemands appends the demands of a schema to out.
func (c *compiler) schemaDemands(schema *value, seen map[*value]bool, out []demand) ([]demand, error) {
	if err := c.budget.Spend(len(schema.names)); err != nil {
		return nil, err
	}
	if ref := schema.get("$ref"); ref != nil {
		target, err := c.doc.find(schema, ref.text)
		if err == nil && target != nil {
			out, err = c.demands(conjunction{{schema: target}}, seen, out)
		}
		if err != nil || c.doc.draft <= 7 {
			return out, err
		}
	}
	for i, name := range schema.names {
		if name == "allOf" {
			list, err := listOf(schema, name, schema.items[i])
			if err == nil {
				out, err = c.demands(list, seen, out)
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		if keywordOf(name) == nil || name == "$ref" {
			continue
		}
		if group := together(schema, name); group[0] == name {
			out = append(out, demandOf(schema, group))
		}
	}
	return out, nil
}

// together returns the keywords of a schema that only have a meaning together with the keyword name,
// including name itself.
func together(schema *value, name string) []string {
	for _, group := range readTogether {
		if !slices.Contains(group, name) {
			continue
		}
		if e := schema.get(group[1]); strings.HasPrefix(group[1], "exclusive") && (e == nil || e.kind == number) {
			break // of a draft above 4
		}
		return slices.DeleteFunc(slices.Clone(schema.names), func(n string) bool { return !slices.Contains(group, n) })
	}
	return []string{name}
}

// demandOf returns the demand of some keywords of a schema.
func demandOf(schema *value, names []string) demand {
	subset := &value{kind: object, parent: schema.parent, key: schema.key}
	var words []string
	for _, name := range names {
		v := schema.get(name)
		subset.names, subset.items = append(subset.names, name), append(subset.items, v)
		words = append(words, strings.TrimSpace(name+" "+v.short()))
	}
	return demand{term{schema: subset}, strings.Join(words, " with ")}
}

// core returns a minimal list of demands that no value satisfies: without any one of them, some value would.
func (c *compiler) core(all []demand) ([]demand, error) {
	for i := 0; i < len(all); {
		if err := c.budget.Spend(len(all)); err != nil {
			return nil, err
		}
		rest := slices.Delete(slices.Clone(all), i, i+1)
		empty, err := c.empty(terms(rest))
		switch {
		case err != nil:
			return nil, err
		case empty:
			all = rest
		default:
			i++
		}
	}
	return all, nil
}

func terms(all []demand) (out conjunction) {
	for _, d := range all {
		out = append(out, d.term)
	}
	return out
}

// empty reports whether no value satisfies all terms. It returns false if a term has a keyword that is not
// supported.
func (c *compiler) empty(all conjunction) (bool, error) {
	g, err := c.build(all, false, 1)
	if unsupported := (*Unsupported)(nil); errors.As(err, &unsupported) {
		return false, nil
	}
	return err == nil && !g.Trim(), err
}

// emptyPart looks for a required member or element that no value satisfies. It returns the schemas of that member or
// element, and a requiredPart that describes it. If there is none, the requiredPart is zero.
func (c *compiler) emptyPart(core []demand) (conjunction, requiredPart, error) {
	s, err := c.shape(terms(core))
	if err != nil {
		return nil, requiredPart{}, err
	}
	for i := range s.objects {
		o := &s.objects[i]
		for _, name := range o.required {
			member := c.member(o, name)
			if slices.Contains(member, term{schema: nothing}) { // the name is not possible
				continue
			}
			if empty, err := c.empty(member); empty || err != nil {
				return member, requiredPart{"the member " + strconv.Quote(name), "required"}, err
			}
		}
	}
	for i := range s.arrays {
		a := &s.arrays[i]
		for k := range min(a.min, a.prefix()+1) {
			element := c.element(a, k)
			if empty, err := c.empty(element); empty || err != nil {
				return element, requiredPart{"element " + strconv.Itoa(k), a.minOf.keyword}, err
			}
		}
	}
	return nil, requiredPart{}, nil
}

// short returns a value as JSON, or "" if the value is an object or the text would be long.
func (v *value) short() string {
	out := ""
	switch v.kind {
	case null, boolFalse, boolTrue:
		out = map[kind]string{null: "null", boolFalse: "false", boolTrue: "true"}[v.kind]
	case number:
		out = v.text
	case text:
		out = strconv.Quote(v.text)
	case array:
		var items []string
		for _, item := range v.items {
			one := item.short()
			if one == "" || len(items) > 5 {
				return ""
			}
			items = append(items, one)
		}
		out = "[" + strings.Join(items, ", ") + "]"
	}
	if len(out) > 40 {
		return ""
	}
	return out
}
