package jinja

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

func (m *machine) str(v any) string {
	switch v := v.(type) {
	case undefined:
		return ""
	case string, markup:
		return textOf(v)
	}
	return m.repr(v)
}

func (m *machine) repr(v any) string {
	switch v := v.(type) {
	case undefined:
		return "Undefined"
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return showFloat(v)
	case string:
		return m.made(m.quote(v)).(string)
	case markup:
		return "Markup(" + m.repr(string(v)) + ")"
	case *list:
		begin, end, one := "[", "]", "]"
		switch {
		case v.shown != "":
			return v.shown
		case v.kind == tuple:
			begin, end, one = "(", ")", ",)"
		case v.kind != "" && v.kind != generator:
			begin, end, one = v.kind+"([", "])", "])"
		case v.kind == generator:
			fail("a generator is used as text; apply the filter list first")
		}
		if len(v.items) == 1 {
			end = one
		}
		return m.shown(begin, end, v.items, m.repr)
	case *Dict:
		return m.shown("{", "}", v.keys, func(k any) string { return m.repr(k) + ": " + m.repr(v.values[key(k)]) })
	case *namespace:
		return "<Namespace " + m.repr(v.Dict) + ">"
	}
	fail("%s is used as text", describe(v))
	return ""
}

func (m *machine) shown(begin, end string, items []any, show func(any) string) string {
	var b strings.Builder
	b.WriteString(begin)
	m.nested(func() {
		for i, item := range items {
			if i > 0 {
				b.WriteString(", ")
			}
			m.spend(4)
			s := show(item)
			m.made(s)
			b.WriteString(s)
		}
	})
	b.WriteString(end)
	return b.String()
}

func showFloat(f float64) string {
	switch {
	case math.IsInf(f, 0) || math.IsNaN(f):
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+"))
	case f != 0 && (math.Abs(f) < 1e-4 || math.Abs(f) >= 1e16):
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func (m *machine) quote(s string) string {
	mark := '\''
	if plain := m.plain(s); strings.Contains(plain, "'") && !strings.Contains(plain, `"`) {
		mark = '"'
	}
	var b strings.Builder
	b.WriteRune(mark)
	for _, written := range s {
		switch r := m.marks.Char(written); {
		case r == mark || r == '\\':
			b.WriteRune('\\')
			b.WriteRune(written)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(written)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteRune(mark)
	return b.String()
}

// maxNesting is the depth to which FromJSON decodes lists and objects.
const maxNesting = 1000

// FromJSON decodes a value for Render. Unlike encoding/json, it keeps the order of keys, and integers of 64 bits stay
// integers. It refuses a value with lists and objects that are nested more than 1000 deep.
func FromJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := decode(d, maxNesting)
	if err == nil {
		if _, err = d.Token(); errors.Is(err, io.EOF) {
			return v, nil
		}
		err = cmp.Or(err, errors.New("there is more after it"))
	}
	if errors.Is(err, errNested) {
		return nil, err
	}
	return nil, fmt.Errorf("a value is not JSON: %w", err)
}

var errNested = fmt.Errorf("a value has lists and objects that are nested more than %d deep", maxNesting)

// decode decodes the next value. The parameter levels is the number of levels that it may have.
func decode(d *json.Decoder, levels int) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case json.Number:
		if i, err := t.Int64(); err == nil {
			return i, nil
		}
		f, _ := t.Float64() // ±Inf if it is too large
		return f, nil
	case json.Delim:
		if levels--; levels < 0 {
			return nil, errNested
		}
		l, o := &list{}, newDict()
		for d.More() {
			v, err := decode(d, levels)
			if err != nil {
				return nil, err
			}
			if t == '[' {
				l.items = append(l.items, v)
				continue
			}
			value, err := decode(d, levels)
			if err != nil {
				return nil, err
			}
			o.put(v, value)
		}
		if _, err = d.Token(); err != nil {
			return nil, err
		}
		if t == '[' {
			return l, nil
		}
		return o, nil
	}
	return t, nil
}

// A style has the settings of tojson.
type style struct {
	item, colon, indent  string
	ascii, sorted, lines bool
}

func tojson(m *machine, v any, a []any) any {
	st := style{item: ", ", colon: ": "}
	st.ascii, st.sorted = m.truth(orDefault(a[0], false)), m.truth(orDefault(a[3], false))
	if given(a[1]) && a[1] != nil {
		st.lines, st.item = true, ","
		if st.indent = textOf(a[1]); st.indent == "" {
			st.indent = m.repeat(" ", asInt(a[1]))
		}
	}
	if given(a[2]) && a[2] != nil {
		both := m.items(a[2])
		if len(both) != 2 {
			fail("tojson takes two separators")
		}
		st.item, st.colon = asText(both[0]), asText(both[1])
	}
	var b strings.Builder
	m.json(&b, v, st, "\n")
	return b.String()
}

// json writes v as JSON to b. If st.lines is true, json begins a new line for each member of a list or an object.
// newline is a line break and the indentation of the line on which v begins.
func (m *machine) json(b *strings.Builder, v any, st style, newline string) {
	m.spend(4)
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		fmt.Fprint(b, v)
	case int64:
		fmt.Fprint(b, v)
	case float64:
		b.WriteString(jsonFloat(v))
	case string, markup:
		m.made(v)
		m.jsonText(b, textOf(v), st.ascii)
	case *list:
		if v.kind != "" && v.kind != tuple {
			fail("%s has no JSON; apply the filter list first", describe(v))
		}
		m.members(b, "[]", len(v.items), st, newline, func(i int, newline string) { m.json(b, v.items[i], st, newline) })
	case *Dict:
		keys := slices.Clone(v.keys)
		if st.sorted {
			slices.SortStableFunc(keys, func(x, y any) int { return order(m, x, y) })
		}
		m.members(b, "{}", len(keys), st, newline, func(i int, newline string) {
			name := textOf(keys[i])
			if !isText(keys[i]) {
				var text strings.Builder
				m.json(&text, keys[i], st, newline)
				name = text.String()
			}
			m.made(name)
			m.jsonText(b, name, st.ascii)
			b.WriteString(st.colon)
			m.json(b, v.values[key(keys[i])], st, newline)
		})
	default:
		fail("%s has no JSON", describe(v))
	}
}

func (m *machine) members(b *strings.Builder, brackets string, n int, st style, newline string, one func(int, string)) {
	m.spend(n * ((len(st.item) + len(st.colon)) / 16))
	b.WriteByte(brackets[0])
	m.nested(func() {
		inner := newline + st.indent
		for i := range n {
			if i > 0 {
				b.WriteString(st.item)
			}
			if st.lines {
				m.made(inner)
				b.WriteString(inner)
			}
			one(i, inner)
		}
	})
	if st.lines && n > 0 {
		b.WriteString(newline)
	}
	b.WriteByte(brackets[1])
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 0):
		return map[bool]string{true: "Infinity", false: "-Infinity"}[f > 0]
	}
	return showFloat(f)
}

func (m *machine) jsonText(b *strings.Builder, s string, ascii bool) {
	short := map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\b': `\b`, '\f': `\f`}
	b.WriteByte('"')
	for _, written := range s {
		switch r := m.marks.Char(written); {
		case short[r] != "":
			b.WriteString(short[r])
		case r < 0x20 || ascii && r >= 0x7f:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(b, `\u%04x`, unit)
			}
		default:
			b.WriteRune(written)
		}
	}
	b.WriteByte('"')
}

// EachText returns a copy of v, a value that FromJSON returned. In the copy, each text t is replaced by f(t); keys of
// objects are texts as well.
func EachText(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case *list:
		copied := &list{kind: v.kind}
		for _, item := range v.items {
			copied.items = append(copied.items, EachText(item, f))
		}
		return copied
	case *Dict:
		copied := newDict()
		for _, k := range v.keys {
			copied.put(EachText(k, f), EachText(v.values[key(k)], f))
		}
		return copied
	}
	return v
}
