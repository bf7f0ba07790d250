package jsonschema

import (
	"net/url"
	"strconv"
	"strings"

	"llmmemory/internal/serving/meter"
)

// document is a schema with an index of the schemas in it that have an identifier or an anchor, for
// references.
type document struct {
	root      *value
	draft     int                  // 3, 4, 6, 7, 2019 or 2020
	resources map[*value]*resource // of the schemas: the resource that each is a part of
	named     map[string]*resource // by URI
	budget    *meter.Meter
}

// resource is a schema that has an identifier, or the whole document.
type resource struct {
	root    *value
	url     *url.URL
	anchors map[string]*value
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

// uriWork is how many bytes of a URI are read at the cost of one unit of work.
const uriWork = 16

func newDocument(root *value, budget *meter.Meter) (*document, error) {
	whole := &resource{root, &url.URL{Scheme: "schema", Host: "root", Path: "/"}, map[string]*value{}}
	d := &document{root, 2020, map[*value]*resource{}, map[string]*resource{whole.url.String(): whole}, budget}
	if root.kind == object {
		if s := root.get("$schema"); s != nil && s.kind == text {
			d.draft = draftOf(s.text)
		}
	}
	return d, d.index(root, whole)
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

// index records the identifiers and anchors in a schema, which is a part of the resource r or is a resource in r. The
// recursion is at most maxDepth deep.
func (d *document) index(v *value, r *resource) error {
	if v.kind != object {
		return nil
	}
	r, err := d.identified(v, r)
	if err != nil {
		return err
	}
	d.resources[v] = r
	for _, keyword := range []string{"$anchor", "$dynamicAnchor"} {
		if a := v.get(keyword); a != nil && a.kind == text {
			r.anchors[a.text] = v
		}
	}
	for i, keyword := range v.names {
		item := v.items[i]
		switch {
		case holdsMap[keyword] && item.kind == object, holdsList[keyword] && item.kind == array:
			for _, schema := range item.items {
				if err := d.index(schema, r); err != nil {
					return err
				}
			}
		case holdsOne[keyword]:
			if err := d.index(item, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// identified returns the resource of a schema in the resource r: a new one if the schema has an identifier.
func (d *document) identified(v *value, r *resource) (*resource, error) {
	id := v.get("$id")
	if d.draft <= 4 {
		id = v.get("id")
	}
	if id == nil || id.kind != text || d.draft <= 7 && v.get("$ref") != nil {
		return r, nil
	}
	if anchor, ok := strings.CutPrefix(id.text, "#"); ok { // up to draft 7
		r.anchors[anchor] = v
		return r, nil
	}
	uri, err := d.resolve(r, id.text)
	if err != nil || uri == nil {
		return r, err
	}
	uri.Fragment, uri.RawFragment = "", ""
	r = &resource{v, uri, map[string]*value{}}
	d.named[uri.String()] = r
	return r, nil
}

// resolve returns the URI that a text in a resource means, or nil if the text is not a URI. The work is that of reading
// both the text and the resource's URI.
func (d *document) resolve(r *resource, ref string) (*url.URL, error) {
	length := len(ref) + len(r.url.Path) + len(r.url.RawQuery) + len(r.url.Host)
	if err := d.budget.Spend(1 + length/uriWork); err != nil {
		return nil, err
	}
	uri, err := r.url.Parse(ref)
	if err != nil {
		return nil, nil
	}
	return uri, nil
}

// find returns the schema that a reference names, or nil if there is none.
func (d *document) find(schema *value, ref string) (*value, error) {
	at := schema
	for d.resources[at] == nil && at != nil { // such as a schema in the value of an unknown keyword
		at = at.parent
	}
	r, ok := d.resources[at]
	if !ok {
		return nil, nil
	}
	fragment, local := strings.CutPrefix(ref, "#")
	if local {
		if decoded, err := url.PathUnescape(fragment); err == nil {
			fragment = decoded
		}
	} else {
		uri, err := d.resolve(r, ref)
		if err != nil || uri == nil {
			return nil, err
		}
		fragment = uri.Fragment
		uri.Fragment, uri.RawFragment = "", ""
		if r, ok = d.named[uri.String()]; !ok {
			return nil, nil
		}
	}
	switch {
	case fragment == "":
		return r.root, nil
	case fragment[0] != '/':
		return r.anchors[fragment], nil
	}
	return r.root.descendant(fragment[1:]), nil
}

// descendant returns the value to which the parts of a JSON pointer lead, or nil.
func (v *value) descendant(parts string) *value {
	for part := range strings.SplitSeq(parts, "/") {
		part = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
		switch {
		case v == nil:
			return nil
		case v.kind == object:
			v = v.get(part)
		case v.kind == array:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(v.items) {
				return nil
			}
			v = v.items[i]
		default:
			return nil
		}
	}
	return v
}
