package jinja

import (
	"regexp"
	"strconv"
)

var verbs = regexp.MustCompile(`%[-+ 0#]*\d*(?:\.\d*)?.?`)

// format computes Python's format % values with the conversions %s, %r, %d, %c and %%.
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

// filled computes Python's str.format with fields such as {}, {0} and {name}.
func (m *machine) filled(format string, a arguments) string {
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
		case err != nil && a.named.has(name):
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
