package jinja

import "slices"

func newDict() *Dict { return &Dict{values: map[any]any{}} }

// key returns the same value for all keys that are equal in Python.
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

// Set sets the value of a key. v is of a type that FromJSON returns.
func (d *Dict) Set(k string, v any) { d.put(k, v) }

func (d *Dict) has(k any) bool { _, ok := d.values[key(k)]; return ok }

// pop removes a key and returns its value, or returns other if there is none.
func (d *Dict) pop(k string, other any) any {
	if !d.has(k) {
		return other
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
	for _, from := range a.list {
		if d, ok := from.(*Dict); ok {
			from = &list{items: d.pairs()}
		}
		for _, pair := range m.items(from) {
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
