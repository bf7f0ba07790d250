package jsonschema

import (
	"net/url"
	"strconv"
	"strings"
)

// document is a schema with an index of the schemas in it that have an identifier or an anchor, for
// references.
type document struct {
	root  *value
	draft int               // 4, 6, 7, 2019 or 2020
	bases map[*value]string // of schemas with an identifier: its URI
	named map[string]*value // by URI, with an anchor after #
}

// The keywords whose value is one schema, a list of schemas, or a map from names to schemas.
var (
	holdsOne = set("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then",
		"unevaluatedItems", "unevaluatedProperties", "contentSchema")
	holdsList = set("allOf", "anyOf", "oneOf", "prefixItems", "items")
	holdsMap  = set("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
)

func set(names ...string) map[string]bool {
	s := map[string]bool{}
	for _, name := range names {
		s[name] = true
	}
	return s
}

const rootURI = "schema://root/"

func newDocument(root *value) *document {
	d := &document{root: root, draft: 2020, bases: map[*value]string{}, named: map[string]*value{rootURI: root}}
	if root.kind == object {
		if s := root.get("$schema"); s != nil && s.kind == text {
			d.draft = draftOf(s.text)
		}
	}
	d.index(root, rootURI)
	return d
}

func draftOf(uri string) int {
	for _, draft := range []struct {
		name string
		year int
	}{{"draft-03", 3}, {"draft-04", 4}, {"draft-05", 4}, {"draft-06", 6}, {"draft-07", 7}, {"2019-09", 2019}} {
		if strings.Contains(uri, draft.name) {
			return draft.year
		}
	}
	return 2020
}

// index records the identifiers and anchors in a schema.
func (d *document) index(v *value, base string) {
	if v.kind != object {
		return
	}
	id := v.get("$id")
	if d.draft <= 4 {
		id = v.get("id")
	}
	if d.draft <= 7 && v.get("$ref") != nil {
		id = nil
	}
	if id != nil && id.kind == text {
		if uri, err := resolve(base, id.text); err == nil {
			if strings.HasPrefix(id.text, "#") { // an anchor, up to draft 7
				d.named[uri] = v
			} else {
				base = strings.TrimSuffix(uri, "#")
				d.named[base] = v
			}
		}
	}
	d.bases[v] = base
	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		if a := v.get(keyword); a != nil && a.kind == text {
			d.named[base+"#"+a.text] = v
		}
	}
	for i, keyword := range v.names {
		item := v.items[i]
		switch {
		case holdsMap[keyword] && item.kind == object, holdsList[keyword] && item.kind == array:
			for _, schema := range item.items {
				d.index(schema, base)
			}
		case holdsOne[keyword]:
			d.index(item, base)
		}
	}
}

func resolve(base, ref string) (string, error) {
	b, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	r, err := b.Parse(ref)
	if err != nil {
		return "", err
	}
	return r.String(), nil
}

// base returns the URI against which references in v are read.
func (d *document) base(v *value) string {
	for ; v != nil; v = v.parent {
		if base, ok := d.bases[v]; ok {
			return base
		}
	}
	return rootURI
}

// find returns the schema that a reference names.
func (d *document) find(schema *value, ref string) (*value, bool) {
	uri, err := resolve(d.base(schema), ref)
	if err != nil {
		return nil, false
	}
	if v, ok := d.named[strings.TrimSuffix(uri, "#")]; ok {
		return v, true
	}
	start, fragment, _ := strings.Cut(uri, "#")
	v, ok := d.named[start]
	if !ok && strings.HasPrefix(ref, "#") {
		v, ok = d.root, true
	}
	if decoded, err := url.PathUnescape(fragment); err == nil {
		fragment = decoded
	}
	if !ok || !strings.HasPrefix(fragment, "/") {
		return nil, false
	}
	for part := range strings.SplitSeq(fragment[1:], "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch v.kind {
		case object:
			v = v.get(part)
		case array:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v.items) {
				return nil, false
			}
			v = v.items[i]
		default:
			return nil, false
		}
		if v == nil {
			return nil, false
		}
	}
	return v, true
}
