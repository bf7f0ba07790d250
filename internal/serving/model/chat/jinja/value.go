package jinja

import (
	"cmp"
	"slices"
	"unicode/utf8"
)

// Values are nil (None), bool, int64, float64, string, and these.
type (
	undefined struct{ reason string }
	markup    string // text that needs no escaping, from safe or escape; + escapes a string that it appends
	// A list is a Python list, tuple, view of a dict, range or generator.
	list struct {
		kind  string // "" is a list
		items []any
		shown string // str() of a range
	}
	// A Dict keeps the order of its keys.
	Dict struct {
		keys   []any
		values map[any]any
	}
	namespace struct{ *Dict }
	function  struct {
		name string
		call func(*machine, arguments) any
	}
	loop struct {
		items []any
		index int
	}
)

const (
	tuple     = "tuple"
	generator = "generator"
)

func (m *machine) value(v any) any {
	switch v := v.(type) {
	case nil, bool, int64, float64, string, *Dict, *list:
		return v
	case int:
		return int64(v)
	case Function:
		return &function{call: func(m *machine, a arguments) any {
			result, err := v(a.list)
			if err != nil {
				panic(failure{err})
			}
			return m.value(result)
		}}
	case []any:
		l := &list{}
		for _, item := range v {
			l.items = append(l.items, m.value(item))
		}
		return l
	case map[string]any:
		d := newDict()
		for k, item := range v {
			d.put(k, m.value(item))
		}
		slices.SortFunc(d.keys, func(a, b any) int { return cmp.Compare(asText(a), asText(b)) })
		return d
	}
	fail("a variable has the type %T", v)
	return nil
}

func describe(v any) string {
	switch v := v.(type) {
	case undefined:
		return "an undefined value (" + v.reason + ")"
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64:
		return "an int"
	case float64:
		return "a float"
	case string, markup:
		return "a str"
	case *list:
		return "a " + cmp.Or(v.kind, "list")
	case *Dict:
		return "a dict"
	case *namespace:
		return "a namespace"
	}
	return "a function"
}

func isUndefined(v any) bool { _, ok := v.(undefined); return ok }

// defined fails if v is undefined.
func defined(v any) {
	if u, ok := v.(undefined); ok {
		fail("%s", u.reason)
	}
}

func (m *machine) truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string, markup:
		return textOf(v) != ""
	case *list:
		return v.kind == generator || len(v.items) > 0
	case *Dict:
		return len(v.keys) > 0
	}
	return true
}

func (m *machine) items(v any) (items []any) {
	switch v := v.(type) {
	case undefined:
	case *list:
		items = v.items
		if v.kind == generator { // it can be read only once
			v.items = nil
		}
	case *Dict:
		items = v.keys
	case string, markup:
		m.spend(size(v))
		for _, r := range textOf(v) {
			items = append(items, string(r))
		}
	case *loop:
		items = v.items
	default:
		fail("%s cannot be looped over", describe(v))
	}
	return items
}

func (m *machine) length(v any) int {
	switch v := v.(type) {
	case undefined:
		return 0
	case string, markup:
		m.spend(size(v) / 16)
		return utf8.RuneCountInString(textOf(v))
	case *list:
		if v.kind != generator {
			return len(v.items)
		}
	case *Dict:
		return len(v.keys)
	}
	fail("%s has no length", describe(v))
	return 0
}
