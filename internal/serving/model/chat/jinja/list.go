package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// indexed reports whether the elements of l can be read by index. It is true for lists, tuples and ranges, and false
// for generators and for views of a dict.
func (l *list) indexed() bool { return l.kind == "" || l.kind == tuple || l.shown != "" }

func (m *machine) copied(v any) []any {
	items := slices.Clone(m.items(v))
	m.spend(len(items))
	return items
}

func (m *machine) slice(v any, bounds [3]any) any {
	l, ok := v.(*list)
	if !isText(v) && (!ok || l.kind != "" && l.kind != tuple) {
		defined(v)
		return undefined{describe(v) + " has no slices"}
	}
	letters, step := m.letters(v), int64(1)
	n := int64(len(letters))
	if ok {
		n = int64(len(l.items))
	}
	if bounds[2] != nil {
		step = asInt(bounds[2])
	}
	if step == 0 {
		fail("the step of a slice is 0")
	}
	low, high := int64(0), n // bounds of from and to
	if step < 0 {
		low, high = -1, n-1
	}
	bound := func(v any, fallback int64) int64 {
		if v == nil {
			return fallback
		}
		i := asInt(v)
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	start, stop := bound(bounds[0], low), bound(bounds[1], high)
	if step < 0 {
		start, stop = bound(bounds[0], high), bound(bounds[1], low)
	}
	var items []any
	var text strings.Builder
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if ok {
			items = append(items, l.items[i])
		} else {
			text.WriteRune(letters[i])
		}
		if step > n || -step > n {
			break
		}
	}
	m.spend(len(items))
	if ok {
		return &list{kind: l.kind, items: items}
	}
	return keepMarkup(v, text.String())
}

func rangeOf(m *machine, a arguments) any {
	bounds := a.bind("start stop step")
	start, stop, step := int64(0), asInt(bounds[0]), int64(1)
	if given(bounds[1]) {
		start, stop = stop, asInt(bounds[1])
	}
	shown := "range(" + strconv.FormatInt(start, 10) + ", " + strconv.FormatInt(stop, 10)
	if given(bounds[2]) {
		step = asInt(bounds[2])
		shown += ", " + strconv.FormatInt(step, 10)
	}
	if step == 0 {
		fail("the step of a range is 0")
	}
	l := &list{kind: "range", shown: shown + ")"}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(l.items) == maxRange {
			fail("a range has more than %d elements", maxRange)
		}
		l.items = append(l.items, i)
		if step > maxRange*maxRange || step < -maxRange*maxRange { // i must not overflow
			break
		}
	}
	return m.made(l)
}

var loopAttributes = map[string]func(l *loop) any{
	"index":     func(l *loop) any { return int64(l.index + 1) },
	"index0":    func(l *loop) any { return int64(l.index) },
	"revindex":  func(l *loop) any { return int64(len(l.items) - l.index) },
	"revindex0": func(l *loop) any { return int64(len(l.items) - l.index - 1) },
	"first":     func(l *loop) any { return l.index == 0 },
	"last":      func(l *loop) any { return l.index == len(l.items)-1 },
	"length":    func(l *loop) any { return int64(len(l.items)) },
	"previtem":  func(l *loop) any { return l.item(l.index - 1) },
	"nextitem":  func(l *loop) any { return l.item(l.index + 1) },
}

func (l *loop) item(i int) any {
	if i < 0 || i >= len(l.items) {
		return undefined{"there is no item before the first or after the last"}
	}
	return l.items[i]
}

func newDict() *Dict { return &Dict{values: map[any]any{}} }

// key converts a Python key to a key of the map Dict.values. Keys that are equal in Python, such as 1, 1.0 and True,
// give the same result.
func key(k any) any {
	switch k := k.(type) {
	case markup:
		return string(k)
	case bool:
		return asInt(k)
	case float64:
		if i := int64(k); float64(i) == k {
			return i
		}
	case nil, int64, string:
	default:
		fail("%s is not supported as a key", describe(k))
	}
	return k
}

func (d *Dict) put(k, v any) {
	if _, ok := d.values[key(k)]; !ok {
		d.keys = append(d.keys, k)
	}
	d.values[key(k)] = v
}

// Get returns the value of a key, or nil.
func (d *Dict) Get(k string) any { return d.values[k] }

// Set sets the value of a key. v must have a type that FromJSON returns.
func (d *Dict) Set(k string, v any) { d.put(k, v) }

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

func (d *Dict) contains(k any) bool { _, ok := d.values[key(k)]; return ok }

// pop removes a key and returns its value. If there is no such key, it returns fallback.
func (d *Dict) pop(k string, fallback any) any {
	if !d.contains(k) {
		return fallback
	}
	v := d.values[k]
	delete(d.values, k)
	d.keys = slices.DeleteFunc(d.keys, func(other any) bool { return other == k })
	return v
}

func (d *Dict) pairs() (items []any) {
	for _, k := range d.keys {
		items = append(items, &list{kind: tuple, items: []any{k, d.values[key(k)]}})
	}
	return items
}

func (d *Dict) all() (values []any) {
	for _, k := range d.keys {
		values = append(values, d.values[key(k)])
	}
	return values
}

func dictOf(m *machine, a arguments) *Dict {
	d := newDict()
	if len(a.list) > 1 {
		fail("dict has more than one argument without a name")
	}
	for _, source := range a.list {
		if d, ok := source.(*Dict); ok {
			source = &list{items: d.pairs()}
		}
		for _, pair := range m.items(source) {
			both := m.items(pair)
			if len(both) != 2 {
				fail("dict takes pairs only")
			}
			d.put(both[0], both[1])
		}
	}
	for _, k := range a.named.keys {
		d.put(k, a.named.values[k])
	}
	m.made(d)
	return d
}
