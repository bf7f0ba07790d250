package jinja

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// A builtin is a filter, a test, or a method. call gets the value that it is applied to and the arguments in the order
// of the parameters. If parameters is raw, it gets the arguments as they were given, as the only element.
type builtin struct {
	parameters string
	call       func(m *machine, v any, a []any) any
}

const raw = "*"

// apply calls a filter or a method, and counts what it reads and makes.
func (b builtin) apply(m *machine, v any, a arguments) any {
	m.spend(size(v) / 16)
	return b.invoke(m, v, a)
}

// invoke calls a test, or a builtin whose value has been counted. Most tests read only the kind of a value, so a long
// text costs them nothing.
func (b builtin) invoke(m *machine, v any, a arguments) any {
	m.spend(1)
	bound := []any{a}
	if b.parameters != raw {
		bound = a.bind(b.parameters)
	}
	return m.made(b.call(m, v, bound))
}

// missing is an argument that is not given.
type missing struct{}

func given(v any) bool { return v != missing{} }

func (a arguments) bind(parameters string) []any {
	names := strings.Fields(parameters)
	if len(a.list) > len(names) {
		fail("%d arguments are given where at most %d are taken", len(a.list), len(names))
	}
	bound := slices.Clone(a.list)
	for _, n := range names[len(a.list):] {
		bound = append(bound, a.named.pop(n, missing{}))
	}
	if len(a.named.keys) > 0 {
		fail("there is no argument %q", a.named.keys[0])
	}
	return bound
}

func or(v, other any) any {
	if given(v) {
		return v
	}
	return other
}

// What jinja2 and Python have and this package does not: filters and tests, functions and variables, and methods.
var (
	leftOut = strings.Fields("abs attr batch center filesizeformat forceescape groupby max min pprint random round slice " +
		"striptags sum truncate urlencode urlize wordcount wordwrap xmlattr escaped filter sameas test")
	functionsLeftOut = strings.Fields("cycler joiner lipsum self super")
	methodsLeftOut   = strings.Fields("casefold center count encode expandtabs format_map index isalnum isalpha " +
		"isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper ljust maketrans " +
		"partition rfind rindex rjust rpartition swapcase translate zfill copy cycle changed")
)

var filters, tests, textMethods, dictMethods map[string]builtin

// loopAttributes are those of the variable loop.
var loopAttributes = map[string]func(l *loop) any{
	"index":     func(l *loop) any { return int64(l.index + 1) },
	"index0":    func(l *loop) any { return int64(l.index) },
	"revindex":  func(l *loop) any { return int64(len(l.items) - l.index) },
	"revindex0": func(l *loop) any { return int64(len(l.items) - l.index - 1) },
	"first":     func(l *loop) any { return l.index == 0 },
	"last":      func(l *loop) any { return l.index == len(l.items)-1 },
	"length":    func(l *loop) any { return int64(len(l.items)) },
	"previtem":  func(l *loop) any { return l.at(l.index - 1) },
	"nextitem":  func(l *loop) any { return l.at(l.index + 1) },
}

func (l *loop) at(i int) any {
	if i < 0 || i >= len(l.items) {
		return undefined{"there is no item before the first or after the last"}
	}
	return l.items[i]
}

var globals = map[string]any{
	"namespace": &function{call: func(m *machine, a arguments) any { return &namespace{dictOf(m, a)} }},
	"dict":      &function{call: func(m *machine, a arguments) any { return dictOf(m, a) }},
	"range":     &function{call: rangeOf},
}

func dictOf(m *machine, a arguments) *Dict {
	d := newDict()
	if len(a.list) > 1 {
		fail("dict has more than one argument without a name")
	}
	for _, from := range a.list {
		if of, ok := from.(*Dict); ok {
			from = &list{items: of.pairs()}
		}
		for _, pair := range m.items(from) {
			both := m.items(pair)
			if len(both) != 2 {
				fail("dict is made of what is no pair")
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

func rangeOf(m *machine, a arguments) any {
	at := a.bind("start stop step")
	from, to, step := int64(0), asInt(at[0]), int64(1)
	if given(at[1]) {
		from, to = to, asInt(at[1])
	}
	shown := "range(" + strconv.FormatInt(from, 10) + ", " + strconv.FormatInt(to, 10)
	if given(at[2]) {
		step = asInt(at[2])
		shown += ", " + strconv.FormatInt(step, 10)
	}
	if step == 0 {
		fail("the step of a range is 0")
	}
	l := &list{kind: "range", shown: shown + ")"}
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
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

func init() {
	is := func(f func(v any) bool) builtin {
		return builtin{"", func(_ *machine, v any, _ []any) any { return f(v) }}
	}
	cased := func(to, other func(string) string) builtin {
		return builtin{"", func(m *machine, v any, _ []any) any {
			m.spend(size(v) / 16)
			s := textOf(v)
			return s == to(s) && s != other(s)
		}}
	}
	divisible := func(by, rest int64) builtin {
		return builtin{"", func(m *machine, v any, _ []any) any { return m.equal(remainder(m, v, by), rest) }}
	}
	tests = map[string]builtin{
		"defined":     is(func(v any) bool { _, not := v.(undefined); return !not }),
		"undefined":   is(func(v any) bool { _, not := v.(undefined); return not }),
		"none":        is(func(v any) bool { return v == nil }),
		"boolean":     is(func(v any) bool { _, ok := v.(bool); return ok }),
		"true":        is(func(v any) bool { return v == true }),
		"false":       is(func(v any) bool { return v == false }),
		"integer":     is(func(v any) bool { _, ok := v.(int64); return ok }),
		"float":       is(func(v any) bool { _, ok := v.(float64); return ok }),
		"number":      is(isNumber),
		"string":      is(isText),
		"mapping":     is(func(v any) bool { _, ok := v.(*Dict); return ok }),
		"callable":    is(func(v any) bool { _, ok := v.(*function); return ok }),
		"upper":       cased(upper, lower),
		"lower":       cased(lower, upper),
		"odd":         divisible(2, 1),
		"even":        divisible(2, 0),
		"divisibleby": {"num", func(m *machine, v any, a []any) any { return m.equal(remainder(m, v, a[0]), int64(0)) }},
		"in":          {"seq", func(m *machine, v any, a []any) any { return contains(m, v, a[0]) }},
		"iterable": is(func(v any) bool {
			switch v.(type) {
			case undefined, *Dict, string, markup, *list, *loop:
				return true
			}
			return false
		}),
		"sequence": is(func(v any) bool {
			l, isList := v.(*list)
			_, isLoop := v.(*loop)
			return isList && l.indexed() || !isList && !isLoop && tests["iterable"].call(nil, v, nil) == true
		}),
	}
	for symbol, titles := range map[string]string{"==": "== eq equalto", "!=": "!= ne", "<": "< lt lessthan",
		"<=": "<= le", ">": "> gt greaterthan", ">=": ">= ge"} {
		for _, title := range strings.Fields(titles) {
			tests[title] = builtin{"other", func(m *machine, v any, a []any) any { return comparisons[symbol](m, v, a[0]) }}
		}
	}
}

func init() {
	of := func(f func(s string) string) builtin {
		return builtin{"", func(m *machine, v any, _ []any) any { return f(m.str(v)) }}
	}
	strip := func(f func(string, func(rune) bool) string) builtin {
		return builtin{"chars", func(m *machine, v any, a []any) any { return like(v, f(m.str(v), m.cut(a[0]))) }}
	}
	affix := func(f func(string, string) bool) builtin {
		return builtin{"affix", func(m *machine, v any, a []any) any {
			s := m.plain(asText(v))
			if l, ok := a[0].(*list); ok && l.kind == tuple {
				return slices.ContainsFunc(l.items, func(one any) bool { return f(s, m.plain(asText(one))) })
			}
			return f(s, m.plain(asText(a[0])))
		}}
	}
	split := func(fromRight bool) builtin {
		return builtin{"sep maxsplit", func(m *machine, v any, a []any) any {
			return &list{items: m.split(asText(v), or(a[0], nil), asInt(or(a[1], int64(-1))), fromRight)}
		}}
	}
	replace := func(text func(m *machine, v any) string) builtin {
		return builtin{"old new count", func(m *machine, v any, a []any) any {
			return m.replaced(text(m, v), text(m, a[0]), text(m, a[1]), or(a[2], nil))
		}}
	}
	textMethods = map[string]builtin{
		"capitalize": of(capitalize), "lower": of(lower), "upper": of(upper), "title": of(titled),
		"strip": strip(strings.TrimFunc), "lstrip": strip(strings.TrimLeftFunc), "rstrip": strip(strings.TrimRightFunc),
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
		"split": split(false), "rsplit": split(true),
		"replace": replace(func(_ *machine, v any) string { return asText(v) }),
		"find": {"sub", func(m *machine, v any, a []any) any {
			at, _ := m.index(asText(v), asText(a[0]), false)
			return int64(utf8.RuneCountInString(asText(v)[:max(at, 0)]) + min(at, 0))
		}},
		"removeprefix": {"prefix", func(m *machine, v any, a []any) any {
			s := asText(v)
			if from, to := m.index(s, asText(a[0]), false); from == 0 {
				return s[to:]
			}
			return s
		}},
		"removesuffix": {"suffix", func(m *machine, v any, a []any) any {
			s := asText(v)
			if from, to := m.index(s, asText(a[0]), true); to == len(s) {
				return s[:from]
			}
			return s
		}},
		"join": {"items", func(m *machine, v any, a []any) any {
			return m.join(asText(v), m.items(a[0]), asText)
		}},
		"splitlines": {"", func(m *machine, v any, _ []any) any {
			s := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(asText(v))
			l := &list{}
			if s != "" {
				l.items = m.split(strings.TrimSuffix(s, "\n"), "\n", -1, false)
			}
			return l
		}},
		"format": {raw, func(m *machine, v any, a []any) any { return m.filled(asText(v), a[0].(arguments)) }},
	}

	view := func(kind string, items func(d *Dict) []any) builtin {
		return builtin{"", func(_ *machine, v any, _ []any) any { return &list{kind: kind, items: items(v.(*Dict))} }}
	}
	dictMethods = map[string]builtin{
		"items":  view("dict_items", (*Dict).pairs),
		"keys":   view("dict_keys", func(d *Dict) []any { return d.keys }),
		"values": view("dict_values", (*Dict).all),
		"get": {"key default", func(m *machine, v any, a []any) any {
			if value, ok := m.entry(v.(*Dict), a[0]); ok {
				return value
			}
			return or(a[1], nil)
		}},
	}
	for _, unsafe := range []string{"clear", "fromkeys", "pop", "popitem", "setdefault", "update"} {
		dictMethods[unsafe] = builtin{} // jinja2's sandbox has them undefined, even if there is a key of that name
	}

	length := builtin{"", func(m *machine, v any, _ []any) any { return int64(m.length(v)) }}
	standard := builtin{"default_value boolean", func(m *machine, v any, a []any) any {
		if _, not := v.(undefined); not || m.truth(or(a[1], false)) && !m.truth(v) {
			return or(a[0], "")
		}
		return v
	}}
	end := func(last bool) builtin {
		return builtin{"", func(m *machine, v any, _ []any) any {
			if l, ok := v.(*list); last && ok && l.kind == generator {
				fail("last is applied to a generator")
			}
			items := m.items(v)
			switch {
			case len(items) == 0:
				return undefined{"the sequence is empty"}
			case last:
				return items[len(items)-1]
			}
			return items[0]
		}}
	}
	str := builtin{"", func(m *machine, v any, _ []any) any { return like(v, m.str(v)) }}
	safe := builtin{"", func(m *machine, v any, _ []any) any { return markup(m.str(v)) }}
	escaped := builtin{"", func(m *machine, v any, _ []any) any {
		if !isText(v) {
			v = m.str(v)
		}
		return m.escape(v)
	}}
	filters = map[string]builtin{
		"capitalize": of(capitalize), "lower": of(lower), "upper": of(upper), "replace": replace((*machine).str),
		"title": {"", func(m *machine, v any, _ []any) any { return m.capitals(m.str(v)) }},
		"trim":  strip(strings.TrimFunc), "string": str, "safe": safe, "e": escaped, "escape": escaped,
		"count": length, "length": length, "d": standard, "default": standard, "first": end(false), "last": end(true),
		"select": chosen(false, true), "selectattr": chosen(true, true),
		"reject": chosen(false, false), "rejectattr": chosen(true, false),
		"list":   {"", func(m *machine, v any, _ []any) any { return &list{items: m.copied(v)} }},
		"format": {raw, func(m *machine, v any, a []any) any { return m.format(m.str(v), a[0].(arguments).list) }},
		"tojson": {"ensure_ascii indent separators sort_keys", tojson},
		"map":    {raw, func(m *machine, v any, a []any) any { return m.mapped(v, a[0].(arguments)) }},
		"dictsort": {"case_sensitive by reverse", func(m *machine, v any, a []any) any {
			d, ok := v.(*Dict)
			if !ok {
				fail("dictsort is applied to %s", describe(v))
			}
			at := int64(0)
			if or(a[1], "key") == "value" {
				at = 1
			}
			return m.sorted(d.pairs(), a[0], a[2], at)
		}},
		"float": {"default", func(_ *machine, v any, a []any) any {
			if isNumber(v) {
				return asFloat(v)
			}
			defined(v)
			if f, err := strconv.ParseFloat(strings.TrimSpace(textOf(v)), 64); err == nil {
				return f
			}
			return or(a[0], 0.0)
		}},
		"int": {"default base", func(_ *machine, v any, a []any) any {
			defined(v)
			f, isFloat := v.(float64)
			if !isFloat && isNumber(v) {
				return asInt(v)
			}
			s := strings.TrimSpace(textOf(v))
			if i, err := strconv.ParseInt(s, int(asInt(or(a[1], int64(10)))), 64); err == nil {
				return i
			}
			if parsed, err := strconv.ParseFloat(s, 64); err == nil {
				f, isFloat = parsed, true
			}
			if isFloat && math.Abs(f) < 1<<62 {
				return int64(f)
			}
			return or(a[0], int64(0))
		}},
		"indent": {"width first blank", func(m *machine, v any, a []any) any {
			width := or(a[0], int64(4))
			by := textOf(width)
			if !isText(width) {
				by = m.repeat(" ", asInt(width))
			}
			lines := strings.Split(strings.ReplaceAll(m.str(v), "\r\n", "\n"), "\n")
			for i := range lines {
				if i == 0 && m.truth(or(a[1], false)) || i > 0 && (lines[i] != "" || m.truth(or(a[2], false))) {
					m.spend(1 + len(by)/16)
					lines[i] = by + lines[i]
				}
			}
			return like(v, strings.Join(lines, "\n"))
		}},
		"items": {"", func(_ *machine, v any, _ []any) any {
			d, ok := v.(*Dict)
			if _, not := v.(undefined); !ok && !not {
				fail("items is applied to %s", describe(v))
			} else if not {
				d = newDict()
			}
			return &list{kind: generator, items: d.pairs()}
		}},
		"join": {"d attribute", func(m *machine, v any, a []any) any {
			of := m.by(a[1])
			return m.join(m.str(or(a[0], "")), m.items(v), func(item any) string { return m.str(of(item)) })
		}},
		"reverse": {"", func(m *machine, v any, _ []any) any {
			if isText(v) {
				return m.slice(v, [3]any{nil, nil, int64(-1)})
			}
			items := m.copied(v)
			slices.Reverse(items)
			return &list{kind: generator, items: items}
		}},
		"sort": {"reverse case_sensitive attribute", func(m *machine, v any, a []any) any {
			return m.sorted(m.copied(v), a[1], a[0], a[2])
		}},
		"unique": {"case_sensitive attribute", func(m *machine, v any, a []any) any {
			result, seen, of := &list{kind: generator}, newDict(), m.by(a[1])
			for _, item := range m.copied(v) {
				k := of(item)
				if isText(k) && !m.truth(or(a[0], false)) {
					k = m.made(lower(asText(k)))
				}
				if !seen.has(k) {
					seen.put(k, nil)
					result.items = append(result.items, item)
				}
			}
			return result
		}},
	}
}

// upper and lower are Python's, which map some letters to several.
func upper(s string) string { return cases.Upper(language.Und).String(s) }
func lower(s string) string { return cases.Lower(language.Und).String(s) }

func capitalize(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return upper(s[:n]) + lower(s[n:])
}

// titled is Python's str.title: a letter after what is no letter is a capital.
func titled(s string) string {
	before := ' '
	return strings.Map(func(r rune) rune {
		inside := unicode.IsLetter(before)
		before = r
		if inside {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, s)
}

// capitals capitalizes the words of a text, as the filter title does.
func (m *machine) capitals(s string) string {
	var b strings.Builder
	for s != "" {
		end := strings.IndexFunc(s, func(r rune) bool { return strings.ContainsRune("-({[< \t\n\f\r", m.marks.Char(r)) })
		if end < 0 {
			end = len(s)
		}
		b.WriteString(capitalize(s[:end]))
		_, size := utf8.DecodeRuneInString(s[end:])
		b.WriteString(s[end : end+size])
		s = s[end+size:]
	}
	return b.String()
}

var entities = map[rune]string{'&': "&amp;", '<': "&lt;", '>': "&gt;", '\'': "&#39;", '"': "&#34;"}

// escape is the text of a value in HTML.
func (m *machine) escape(v any) markup {
	if s, ok := v.(markup); ok {
		return s
	}
	var b strings.Builder
	for _, r := range asText(v) {
		if e := entities[m.marks.Char(r)]; e != "" {
			b.WriteString(e)
			continue
		}
		b.WriteRune(r)
	}
	return markup(b.String())
}

// index is where a text has another one first, or last, both -1 if nowhere: marks count as their characters.
func (m *machine) index(s, sub string, last bool) (from, to int) {
	if m.marks.In(s) {
		m.spend(1 + len(s)/16)
	}
	return m.marks.Index(s, sub, last)
}

// repeat makes n times s.
func (m *machine) repeat(s string, n int64) string {
	n = max(n, 0)
	m.spend(int(min(n, maxSteps)) * (1 + len(s)/16))
	return strings.Repeat(s, int(n))
}

// copied are items that may be changed.
func (m *machine) copied(v any) []any {
	items := slices.Clone(m.items(v))
	m.spend(len(items))
	return items
}

func (m *machine) join(separator string, items []any, str func(any) string) string {
	m.spend(len(items) * (1 + len(separator)/16))
	parts := make([]string, len(items))
	for i, item := range items {
		parts[i] = str(item)
		m.made(parts[i])
	}
	return strings.Join(parts, separator)
}

// path is an attribute of a value, or one of its attribute, as in a.b.
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

// by is the attribute of an item, or the item if no attribute is given.
func (m *machine) by(attribute any) func(any) any {
	if !given(attribute) || attribute == nil {
		return func(v any) any { return v }
	}
	return func(v any) any { return m.path(v, attribute) }
}

// sorted sorts items in place by an attribute.
func (m *machine) sorted(items []any, exact, reverse, attribute any) *list {
	of, exact, reverse := m.by(attribute), m.truth(or(exact, false)), m.truth(or(reverse, false))
	slices.SortStableFunc(items, func(a, b any) int {
		x, y := of(a), of(b)
		if exact == false && isText(x) && isText(y) {
			x, y = lower(asText(x)), lower(asText(y))
		}
		if reverse == true {
			x, y = y, x
		}
		return order(m, x, y)
	})
	return &list{items: items}
}

// rest are the arguments without the first positional one.
func (a arguments) rest() arguments {
	named := newDict()
	for _, k := range a.named.keys {
		named.put(k, a.named.values[k])
	}
	return arguments{a.list[1:], named}
}

// mapped applies a filter to items, or takes an attribute of each.
func (m *machine) mapped(v any, a arguments) any {
	result := &list{kind: generator}
	if !m.truth(v) {
		return result
	}
	var apply func(item any) any
	if len(a.list) == 0 {
		attribute, other := a.named.pop("attribute", missing{}), a.named.pop("default", missing{})
		if !given(attribute) {
			fail("map has no filter and no attribute")
		}
		apply = func(item any) any {
			got := m.path(item, attribute)
			if _, not := got.(undefined); not {
				return or(other, got)
			}
			return got
		}
	} else {
		f, ok := filters[textOf(a.list[0])]
		if !ok {
			fail("map has the filter %q, which is not known", textOf(a.list[0]))
		}
		apply = func(item any) any { return f.apply(m, item, a.rest()) }
	}
	for _, item := range m.copied(v) {
		result.items = append(result.items, apply(item))
	}
	return result
}

// chosen makes select, selectattr, reject or rejectattr.
func chosen(attribute, keeps bool) builtin {
	return builtin{raw, func(m *machine, v any, given []any) any {
		result, a := &list{kind: generator}, given[0].(arguments)
		if !m.truth(v) {
			return result
		}
		of := m.by(nil)
		if attribute {
			if len(a.list) == 0 {
				fail("the filter has no attribute")
			}
			of, a = m.by(a.list[0]), a.rest()
		}
		test := m.truth
		if len(a.list) > 0 {
			f, ok := tests[textOf(a.list[0])]
			if !ok {
				fail("the filter has the test %q, which is not known", textOf(a.list[0]))
			}
			test = func(v any) bool { return f.invoke(m, v, a.rest()) == true }
		}
		for _, item := range m.copied(v) {
			if test(of(item)) == keeps {
				result.items = append(result.items, item)
			}
		}
		return result
	}}
}

// cut says which characters a strip removes.
func (m *machine) cut(chars any) func(rune) bool {
	if !given(chars) || chars == nil {
		return isSpace
	}
	set := m.plain(asText(chars))
	m.spend(len(set))
	return func(r rune) bool { return strings.ContainsRune(set, m.marks.Char(r)) }
}

func (m *machine) replaced(s, from, to string, count any) string {
	n := int64(-1)
	if count != nil {
		n = asInt(count)
	}
	from = m.plain(from)
	if m.marks.In(s) && from != "" {
		var parts []string
		for _, part := range m.split(s, from, n, false) {
			parts = append(parts, part.(string))
		}
		m.spend(len(parts) * (1 + len(to)/16))
		return strings.Join(parts, to)
	}
	found := min(uint64(n), uint64(strings.Count(s, from)))
	m.spend(int(found) * (1 + len(to)/16))
	return strings.Replace(s, from, to, int(n))
}

// split splits a text at a separator, or at white space if it is nil, at most n times.
func (m *machine) split(s string, separator any, n int64, fromRight bool) (items []any) {
	by, spaces := "", separator == nil
	if spaces {
		if s = strings.TrimFunc(s, isSpace); s == "" {
			return nil
		}
	} else if by = asText(separator); by == "" {
		fail("the separator is empty")
	}
	for ; n != 0; n-- {
		at, to := 0, 0
		switch {
		case !spaces:
			at, to = m.index(s, by, fromRight)
		case fromRight:
			at = strings.LastIndexFunc(s, isSpace)
		default:
			at = strings.IndexFunc(s, isSpace)
		}
		if at < 0 {
			break
		}
		m.spend(1)
		if spaces {
			_, width := utf8.DecodeRuneInString(s[at:])
			to = at + width
		}
		head, tail := s[:at], s[to:]
		if spaces {
			head, tail = strings.TrimRightFunc(head, isSpace), strings.TrimLeftFunc(tail, isSpace)
		}
		if fromRight {
			items, s = append(items, tail), head
		} else {
			items, s = append(items, head), tail
		}
	}
	items = append(items, s)
	if fromRight {
		slices.Reverse(items)
	}
	return items
}

var verbs = regexp.MustCompile(`%[-+ 0#]*\d*(?:\.\d*)?.?`)

// format is Python's format % values with the conversions %s, %r, %d, %c and %%.
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

// filled is Python's str.format with fields such as {}, {0} and {name}.
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
