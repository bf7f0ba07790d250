package structured

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"llmmemory/internal/serving/structured/lexeme"
)

func quoted(text string) []byte { return append(lexeme.Encode([]byte{'"'}, text), '"') }

// tree is a JSON value with the order of its members.
type tree struct {
	token json.Token
	names []string
	items []*tree
}

func parseTree(data []byte) *tree {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var read func() *tree
	read = func() *tree {
		token, err := d.Token()
		if err != nil {
			return nil
		}
		t := &tree{token: token}
		if delim, ok := token.(json.Delim); ok {
			for d.More() {
				if delim == '{' {
					name, _ := d.Token()
					t.names = append(t.names, name.(string))
				}
				t.items = append(t.items, read())
			}
			_, _ = d.Token()
		}
		return t
	}
	return read()
}

func (t *tree) get(name string) *tree {
	if i := slices.Index(t.names, name); i >= 0 {
		return t.items[i]
	}
	return nil
}

func (t *tree) append(out []byte) []byte {
	switch token := t.token.(type) {
	case json.Delim:
		out = append(out, token.String()...)
		for i, item := range t.items {
			if i > 0 {
				out = append(out, ',')
			}
			if len(t.names) > 0 {
				out = append(append(out, quoted(t.names[i])...), ':')
			}
			out = item.append(out)
		}
		return append(out, map[json.Delim]byte{'{': '}', '[': ']'}[token])
	case string:
		return append(out, quoted(token)...)
	default:
		text, _ := json.Marshal(token)
		return append(out, text...)
	}
}

// inOrder returns an instance with the members of its objects in the order in which the schema lists them.
func inOrder(schema, data []byte) []byte {
	root, instance := parseTree(schema), parseTree(data)
	if root == nil || instance == nil {
		return nil
	}
	reorder(root, []*tree{root}, instance, 0)
	return instance.append(nil)
}

// reorder sorts the members of an instance into the order in which the given schemas list them. It also sorts
// the members of all objects inside the instance, by the schemas that apply to them.
func reorder(root *tree, schemas []*tree, instance *tree, depth int) {
	if depth > 40 || len(instance.items) == 0 {
		return
	}
	o := &ordering{root: root, instance: instance, members: map[string][]*tree{}, seen: map[*tree]bool{}}
	for _, s := range schemas {
		o.visit(s)
	}
	for _, name := range o.required {
		o.add(name)
	}
	sortMembers(instance, o.names)
	for i, item := range instance.items {
		switch {
		case len(instance.names) == 0:
			reorder(root, o.elements, item, depth+1)
		case o.members[instance.names[i]] != nil:
			reorder(root, o.members[instance.names[i]], item, depth+1)
		default:
			reorder(root, o.others, item, depth+1)
		}
	}
}

// ordering collects what the schemas that may apply to one instance say: the order of the instance's members, and the
// schemas that apply to these members or to the instance's elements.
type ordering struct {
	root, instance   *tree
	names, required  []string
	members          map[string][]*tree
	elements, others []*tree
	seen             map[*tree]bool
}

func (o *ordering) add(name string) {
	if !slices.Contains(o.names, name) {
		o.names = append(o.names, name)
	}
}

func (o *ordering) visit(s *tree) {
	if s == nil || o.seen[s] {
		return
	}
	o.seen[s] = true
	for i, keyword := range s.names {
		o.keyword(keyword, s.items[i])
	}
	if names := s.get("required"); names != nil {
		for _, name := range names.items {
			if text, ok := name.token.(string); ok {
				o.required = append(o.required, text)
			}
		}
	}
}

func (o *ordering) keyword(keyword string, item *tree) {
	switch keyword {
	case "$ref":
		if ref, ok := item.token.(string); ok && strings.HasPrefix(ref, "#") {
			o.visit(pointed(o.root, ref))
		}
	case "allOf":
		for _, one := range item.items {
			o.visit(one)
		}
	case "anyOf", "oneOf":
		for _, one := range item.items {
			if fitting(o.root, one, o.instance, 0) {
				o.visit(one)
			}
		}
	case "if", "then", "else":
		o.visit(item)
	case "dependencies", "dependentSchemas":
		for i, name := range item.names {
			if o.instance.get(name) != nil {
				o.visit(item.items[i])
			}
		}
	case "properties":
		for i, name := range item.names {
			o.add(name)
			o.members[name] = append(o.members[name], item.items[i])
		}
	case "additionalProperties":
		o.others = append(o.others, item)
	case "patternProperties":
		o.others = append(o.others, item.items...)
	case "items", "prefixItems":
		if len(item.names) > 0 {
			o.elements = append(o.elements, item)
		} else {
			o.elements = append(o.elements, item.items...)
		}
	}
}

// fitting reports whether a schema may apply to an instance: the required members exist, and constants
// are equal.
func fitting(root, s, instance *tree, depth int) bool {
	if s == nil || depth > 10 {
		return true
	}
	if ref := s.get("$ref"); ref != nil {
		if text, ok := ref.token.(string); ok && strings.HasPrefix(text, "#") {
			return fitting(root, pointed(root, text), instance, depth+1)
		}
	}
	if all := s.get("allOf"); all != nil && slices.ContainsFunc(all.items, func(one *tree) bool { return !fitting(root, one, instance, depth+1) }) {
		return false
	}
	for _, keyword := range []string{"anyOf", "oneOf"} {
		if alternatives := s.get(keyword); alternatives != nil && !slices.ContainsFunc(alternatives.items, func(one *tree) bool { return fitting(root, one, instance, depth+1) }) {
			return false
		}
	}
	if values := s.get("enum"); values != nil && len(values.names) == 0 {
		text := string(instance.append(nil))
		if !slices.ContainsFunc(values.items, func(v *tree) bool { return string(v.append(nil)) == text }) {
			return false
		}
	}
	if value := s.get("const"); value != nil && string(value.append(nil)) != string(instance.append(nil)) {
		return false
	}
	if _, composed := instance.token.(json.Delim); !composed {
		return true
	}
	if names := s.get("required"); names != nil {
		for _, name := range names.items {
			if text, ok := name.token.(string); ok && instance.get(text) == nil {
				return false
			}
		}
	}
	properties := s.get("properties")
	for i, name := range instance.names {
		switch {
		case properties == nil:
		case properties.get(name) != nil:
			if !fitting(root, properties.get(name), instance.items[i], depth+1) {
				return false
			}
		case s.get("additionalProperties") != nil && s.get("additionalProperties").token == false && s.get("patternProperties") == nil:
			return false
		}
	}
	return true
}

func sortMembers(t *tree, order []string) {
	place := func(name string) int {
		if i := slices.Index(order, name); i >= 0 {
			return i
		}
		return len(order)
	}
	if len(t.names) == 0 {
		return
	}
	indices := make([]int, len(t.names))
	for i := range indices {
		indices[i] = i
	}
	slices.SortStableFunc(indices, func(a, b int) int { return place(t.names[a]) - place(t.names[b]) })
	var names []string
	var items []*tree
	for _, i := range indices {
		names, items = append(names, t.names[i]), append(items, t.items[i])
	}
	t.names, t.items = names, items
}

func pointed(root *tree, ref string) *tree {
	node := root
	for part := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(ref, "#"), "/"), "/") {
		if part == "" || node == nil {
			continue
		}
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		node = node.get(part)
	}
	return node
}
