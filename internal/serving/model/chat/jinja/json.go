package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf16"
)

// FromJSON decodes a value for Render. Unlike with encoding/json's maps, objects keep the order of their keys, and
// integers stay integers.
func FromJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := decode(d)
	if err != nil {
		return nil, fmt.Errorf("a value is not JSON: %w", err)
	}
	return v, nil
}

func decode(d *json.Decoder) (any, error) {
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
		l, o := &list{}, newDict()
		for d.More() {
			v, err := decode(d)
			if err != nil {
				return nil, err
			}
			if t == '[' {
				l.items = append(l.items, v)
				continue
			}
			value, err := decode(d)
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
	st.ascii, st.sorted = m.truth(or(a[0], false)), m.truth(or(a[3], false))
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

// json writes a value. line is a line break followed by the value's indentation.
func (m *machine) json(b *strings.Builder, v any, st style, line string) {
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
		m.members(b, "[]", len(v.items), st, line, func(i int, line string) { m.json(b, v.items[i], st, line) })
	case *Dict:
		keys := slices.Clone(v.keys)
		if st.sorted {
			slices.SortStableFunc(keys, func(x, y any) int { return order(m, x, y) })
		}
		m.members(b, "{}", len(keys), st, line, func(i int, line string) {
			name := textOf(keys[i])
			if !isText(keys[i]) {
				var text strings.Builder
				m.json(&text, keys[i], st, line)
				name = text.String()
			}
			m.made(name)
			m.jsonText(b, name, st.ascii)
			b.WriteString(st.colon)
			m.json(b, v.values[key(keys[i])], st, line)
		})
	default:
		fail("%s has no JSON", describe(v))
	}
}

func (m *machine) members(b *strings.Builder, brackets string, n int, st style, line string, one func(int, string)) {
	m.spend(n * ((len(st.item) + len(st.colon)) / 16))
	b.WriteByte(brackets[0])
	m.nested(func() {
		inner := line + st.indent
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
		b.WriteString(line)
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

// EachText returns a copy of v, a value of FromJSON, with each text replaced by f, including keys.
func EachText(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case *list:
		to := &list{kind: v.kind}
		for _, item := range v.items {
			to.items = append(to.items, EachText(item, f))
		}
		return to
	case *Dict:
		to := newDict()
		for _, k := range v.keys {
			to.put(EachText(k, f), EachText(v.values[key(k)], f))
		}
		return to
	}
	return v
}
