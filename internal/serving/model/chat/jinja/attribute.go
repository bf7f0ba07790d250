package jinja

import (
	"fmt"
	"strconv"
	"strings"
)

func (m *machine) attribute(v any, name string) any {
	defined(v)
	var methods map[string]builtin
	switch v := v.(type) {
	case *Dict:
		methods = dictMethods
		if _, method := methods[name]; !method && v.contains(name) {
			return v.values[name]
		}
	case *namespace:
		if v.contains(name) {
			return v.values[name]
		}
	case *loop:
		if f := loopAttributes[name]; f != nil {
			return f(v)
		}
	case *function:
		if name == "name" && v.name != "" {
			return v.name
		}
	case string, markup:
		methods = textMethods
	}
	if f := methods[name]; f.call != nil {
		return &function{call: func(m *machine, a arguments) any { return f.apply(m, v, a) }}
	}
	return undefined{fmt.Sprintf("%s has no attribute %q that a template may use", describe(v), name)}
}

// entry returns the value of key k. If d has no key k, and k contains marks (see RenderTo), entry replaces these marks
// by their characters and looks for that key.
func (m *machine) entry(d *Dict, k any) (v any, ok bool) {
	if !d.contains(k) && isText(k) {
		k = m.plain(textOf(k))
	}
	return d.values[key(k)], d.contains(k)
}

func (m *machine) item(v, k any) any {
	defined(v)
	if d, ok := v.(*Dict); ok && (k == nil || isNumber(k) || isText(k)) {
		if value, found := m.entry(d, k); found {
			return value
		}
	}
	switch k.(type) {
	case string, markup:
		return m.attribute(v, asText(k))
	case bool, int64:
		l, ok := v.(*list)
		letters, i := m.letters(v), asInt(k)
		n := len(letters)
		if ok = ok && l.indexed(); ok {
			n = len(l.items)
		}
		if i < 0 {
			i += int64(n)
		}
		switch {
		case i < 0 || i >= int64(n):
		case ok:
			return l.items[i]
		default:
			return string(letters[i])
		}
	}
	return undefined{fmt.Sprintf("%s has no element %s", describe(v), m.repr(k))}
}

func (m *machine) call(v any, a arguments) any {
	m.spend(1)
	if f, ok := v.(*function); ok {
		return f.call(m, a)
	}
	defined(v)
	fail("%s cannot be called", describe(v))
	return nil
}

func (m *machine) path(v, attribute any) any {
	if !isText(attribute) {
		return m.item(v, attribute)
	}
	for part := range strings.SplitSeq(asText(attribute), ".") {
		if i, err := strconv.ParseInt(part, 10, 64); err == nil {
			v = m.item(v, i)
		} else {
			v = m.item(v, part)
		}
	}
	return v
}

// keyFunc returns the function that gets an item's key for filters such as sort. The key is the item's attribute, or
// the item itself if attribute is not given or None.
func (m *machine) keyFunc(attribute any) func(any) any {
	if !given(attribute) || attribute == nil {
		return func(v any) any { return v }
	}
	return func(v any) any { return m.path(v, attribute) }
}
