package jinja

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

var textMethods = map[string]builtin{
	"capitalize":   {"", textFunc(capitalize)},
	"lower":        {"", textFunc(lower)},
	"upper":        {"", textFunc(upper)},
	"title":        {"", textFunc(titled)},
	"strip":        {"chars", stripped(strings.TrimFunc)},
	"lstrip":       {"chars", stripped(strings.TrimLeftFunc)},
	"rstrip":       {"chars", stripped(strings.TrimRightFunc)},
	"startswith":   {"affix", withAffix(strings.HasPrefix)},
	"endswith":     {"affix", withAffix(strings.HasSuffix)},
	"removeprefix": {"prefix", removeAffix(false)},
	"removesuffix": {"suffix", removeAffix(true)},
	"split":        {"sep maxsplit", splitText(false)},
	"rsplit":       {"sep maxsplit", splitText(true)},
	"splitlines":   {"", splitLines},
	"find":         {"sub", findText},
	"replace":      {"old new count", replacing(func(_ *machine, v any) string { return asText(v) })},
	"join": {"items", func(m *machine, v any, a []any) any {
		return m.join(asText(v), m.items(a[0]), asText)
	}},
	"format": {raw, func(m *machine, v any, a []any) any { return m.formatFields(asText(v), a[0].(arguments)) }},
}

// dictMethods has the methods of a dict. Methods that change a dict are undefined in jinja2's sandbox, even if the dict
// has a key with the same name.
var dictMethods = map[string]builtin{
	"items":  {"", dictView("dict_items", (*Dict).pairs)},
	"keys":   {"", dictView("dict_keys", func(d *Dict) []any { return d.keys })},
	"values": {"", dictView("dict_values", (*Dict).all)},
	"get": {"key default", func(m *machine, v any, a []any) any {
		if value, ok := m.entry(v.(*Dict), a[0]); ok {
			return value
		}
		return orDefault(a[1], nil)
	}},
	"clear": {}, "fromkeys": {}, "pop": {}, "popitem": {}, "setdefault": {}, "update": {},
}

// textFunc returns a method or a filter that converts its value to text and returns f of this text.
func textFunc(f func(s string) string) builtinFunc {
	return func(m *machine, v any, _ []any) any { return f(m.str(v)) }
}

func stripped(trim func(string, func(rune) bool) string) builtinFunc {
	return func(m *machine, v any, a []any) any { return keepMarkup(v, trim(m.str(v), m.cut(a[0]))) }
}

func withAffix(hasAffix func(s, affix string) bool) builtinFunc {
	return func(m *machine, v any, a []any) any {
		s := m.plain(asText(v))
		if l, ok := a[0].(*list); ok && l.kind == tuple {
			return slices.ContainsFunc(l.items, func(one any) bool { return hasAffix(s, m.plain(asText(one))) })
		}
		return hasAffix(s, m.plain(asText(a[0])))
	}
}

// removeAffix returns a method that removes an affix: removesuffix if suffix is true, else removeprefix.
func removeAffix(suffix bool) builtinFunc {
	return func(m *machine, v any, a []any) any {
		s := asText(v)
		start, end := m.index(s, asText(a[0]), suffix)
		switch {
		case suffix && end == len(s):
			return s[:start]
		case !suffix && start == 0:
			return s[end:]
		}
		return s
	}
}

func splitText(fromRight bool) builtinFunc {
	return func(m *machine, v any, a []any) any {
		return &list{items: m.split(asText(v), orDefault(a[0], nil), asInt(orDefault(a[1], int64(-1))), fromRight)}
	}
}

func splitLines(m *machine, v any, _ []any) any {
	s := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(asText(v))
	l := &list{}
	if s != "" {
		l.items = m.split(strings.TrimSuffix(s, "\n"), "\n", -1, false)
	}
	return l
}

// findText returns an index in characters, as Python does.
func findText(m *machine, v any, a []any) any {
	index, _ := m.index(asText(v), asText(a[0]), false)
	return int64(utf8.RuneCountInString(asText(v)[:max(index, 0)]) + min(index, 0))
}

func replacing(text func(m *machine, v any) string) builtinFunc {
	return func(m *machine, v any, a []any) any {
		return m.replaced(text(m, v), text(m, a[0]), text(m, a[1]), orDefault(a[2], nil))
	}
}

func dictView(kind string, items func(d *Dict) []any) builtinFunc {
	return func(_ *machine, v any, _ []any) any { return &list{kind: kind, items: items(v.(*Dict))} }
}

var verbs = regexp.MustCompile(`%[-+ 0#]*\d*(?:\.\d*)?.?`)

// format returns the value of Python's expression format % values. It supports the conversions %s, %r, %d, %c and
// %%.
func (m *machine) format(format string, values []any) string {
	result := verbs.ReplaceAllStringFunc(format, func(verb string) string {
		if verb == "%%" {
			return "%"
		}
		if len(values) == 0 {
			fail("%q has more conversions than values", format)
		}
		v := values[0]
		values = values[1:]
		switch {
		case verb == "%s" || verb == "%c" && isText(v):
			return m.made(m.str(v)).(string)
		case verb == "%r":
			return m.repr(v)
		case verb == "%d" && isNumber(v):
			return strconv.FormatInt(int64(asFloat(v)), 10)
		case verb == "%c":
			return string(rune(asInt(v)))
		}
		fail("the conversion %q of %s is not supported", verb, describe(v))
		return ""
	})
	if len(values) > 0 {
		fail("%q has fewer conversions than values", format)
	}
	return result
}

var fields = regexp.MustCompile(`\{\{|\}\}|\{[^{}.\[:!]*\}|[{}]`)

// formatFields returns format.format(a) of Python. It supports fields such as {}, {0} and {name}.
func (m *machine) formatFields(format string, a arguments) string {
	next := 0
	return fields.ReplaceAllStringFunc(format, func(field string) string {
		switch field {
		case "{{", "}}":
			return field[:1]
		case "{", "}":
			fail("the format %q is not supported", format)
		case "{}":
			field = "{" + strconv.Itoa(next) + "}"
			next++
		}
		name := field[1 : len(field)-1]
		i, err := strconv.Atoi(name)
		var v any
		switch {
		case err != nil && a.named.contains(name):
			v = a.named.values[name]
		case err == nil && i >= 0 && i < len(a.list):
			v = a.list[i]
		default:
			fail("the format has the field %q, which is not given", name)
		}
		s := m.str(v)
		m.made(s)
		return s
	})
}
