package regex

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"llmmemory/internal/serving/structured/automaton"
)

func ranges(bounds ...rune) automaton.Set {
	var out []automaton.Range
	for i := 0; i < len(bounds); i += 2 {
		out = append(out, automaton.Range{Lo: bounds[i], Hi: bounds[i+1]})
	}
	return automaton.NewSet(out...)
}

// The classes of ECMA 262. The class \d has only ASCII digits, and \w only ASCII letters, digits and _. The
// class \s has the white space of Unicode but U+0085, and U+FEFF.
var (
	digits = ranges('0', '9')
	words  = ranges('0', '9', 'A', 'Z', '_', '_', 'a', 'z')
	spaces = ranges('\t', '\r', ' ', ' ', 0xA0, 0xA0, 0x1680, 0x1680, 0x2000, 0x200A, 0x2028, 0x2029, 0x202F, 0x202F,
		0x205F, 0x205F, 0x3000, 0x3000, 0xFEFF, 0xFEFF)
	noDigits, noWords, noSpaces = digits.Negate(), words.Negate(), spaces.Negate()
	lineCharacters              = ranges('\n', '\n', '\r', '\r', 0x2028, 0x2029).Negate() // what a dot matches
)

var posix = map[string]automaton.Set{
	"alpha": ranges('A', 'Z', 'a', 'z'), "digit": digits, "alnum": ranges('0', '9', 'A', 'Z', 'a', 'z'),
	"upper": ranges('A', 'Z'), "lower": ranges('a', 'z'), "space": ranges('\t', '\r', ' ', ' '), "blank": ranges('\t', '\t', ' ', ' '),
	"punct": ranges('!', '/', ':', '@', '[', '`', '{', '~'), "xdigit": ranges('0', '9', 'A', 'F', 'a', 'f'), "word": words,
	"cntrl": ranges(0, 0x1F, 0x7F, 0x7F), "print": ranges(' ', '~'), "graph": ranges('!', '~'), "ascii": ranges(0, 0x7F),
}

// class reads what follows an opening bracket.
func (p *parser) class() (automaton.Set, error) {
	negative := p.accept("^")
	var members []automaton.Range
	add := func(sets ...automaton.Set) error {
		for _, s := range sets {
			if err := p.meter.Spend(len(s)); err != nil {
				return p.limited(err)
			}
			if err := p.meter.Keep(rangeBytes * len(s)); err != nil {
				return p.limited(err)
			}
			members = append(members, s...)
		}
		return nil
	}
	for !p.accept("]") {
		if p.pos == len(p.text) {
			return nil, p.problem("a [ without its ]")
		}
		low, one, err := p.member()
		if err != nil {
			return nil, err
		}
		if one && p.peek("-") && !p.peek("-]") {
			p.pos++
			high, oneHigh, err := p.member()
			switch {
			case err != nil:
				return nil, err
			case oneHigh && high[0].Lo < low[0].Lo:
				return nil, p.problem("a range of characters whose end is before its begin")
			case oneHigh:
				low = ranges(low[0].Lo, high[0].Lo)
			default: // a class cannot end a range, so the - is a character
				err = add(single('-'), high)
			}
			if err != nil {
				return nil, err
			}
		}
		if err := add(low); err != nil {
			return nil, err
		}
	}
	all := automaton.NewSet(members...)
	if p.fold {
		var err error
		if all, err = p.folded(all); err != nil {
			return nil, err
		}
	}
	if negative {
		all = all.Negate()
	}
	return all, nil
}

// rangeBytes is about what a range takes while the set that contains it is made.
const rangeBytes = 24

// member reads one character or class between brackets. It returns true if it was a single character, which
// can begin or end a range.
func (p *parser) member() (automaton.Set, bool, error) {
	if p.accept("[:") {
		end := strings.Index(p.text[p.pos:], ":]")
		if end >= 0 {
			name := p.text[p.pos : p.pos+end]
			s, ok := posix[strings.TrimPrefix(name, "^")]
			if !ok {
				return nil, false, p.problem("the class [:%s:] is not known", shown(name))
			}
			p.pos += end + 2
			if strings.HasPrefix(name, "^") {
				s = s.Negate()
			}
			return s, false, nil
		}
		p.pos--
		return single('['), true, nil
	}
	if p.accept(`\`) {
		s, err := p.escape(true)
		if err != nil {
			return nil, false, err
		}
		return s, len(s) == 1 && s[0].Lo == s[0].Hi, nil
	}
	if p.pos == len(p.text) {
		return nil, false, p.problem("a [ without its ]")
	}
	s := single(p.rune())
	return s, len(s) == 1, nil
}

var controls = map[rune]rune{'t': '\t', 'n': '\n', 'r': '\r', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1B, '0': 0}

// escape reads what follows a backslash.
func (p *parser) escape(inClass bool) (automaton.Set, error) {
	if p.pos == len(p.text) {
		return nil, p.problem("nothing after the last \\")
	}
	switch r := p.rune(); r {
	case 'd':
		return digits, nil
	case 'D':
		return noDigits, nil
	case 'w':
		return words, nil
	case 'W':
		return noWords, nil
	case 's':
		return spaces, nil
	case 'S':
		return noSpaces, nil
	case 'p', 'P':
		return p.property(r == 'P')
	case 'x', 'u', 'U':
		r, err := p.hex(r)
		return single(r), err
	case 'c':
		if p.pos < len(p.text) {
			if c := p.text[p.pos] | 0x20; c >= 'a' && c <= 'z' {
				p.pos++
				return single(rune(c - 'a' + 1)), nil
			}
		}
		return nil, p.problem("\\c without a letter")
	default:
		if c, ok := controls[r]; ok {
			return single(c), nil
		}
		switch {
		case r == 'b' && inClass:
			return single('\b'), nil
		case r >= '1' && r <= '9' || r == 'k':
			return nil, p.problem("a reference to a group is not supported")
		case r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z':
			return nil, p.problem("the escape \\%c is not known", r)
		}
		return single(r), nil
	}
}

// hex reads the hexadecimal digits after \x, \u or \U, and a second \u if the first one begins a pair of
// surrogates.
func (p *parser) hex(escape rune) (rune, error) {
	if p.accept("{") {
		end := strings.IndexByte(p.text[p.pos:], '}')
		if end < 0 {
			return 0, p.problem("\\%c{ without its }", escape)
		}
		n, err := strconv.ParseUint(p.text[p.pos:p.pos+end], 16, 32)
		if err != nil || n > automaton.MaxRune {
			return 0, p.problem("\\%c{%s} is no character", escape, shown(p.text[p.pos:p.pos+end]))
		}
		p.pos += end + 1
		return rune(n), nil
	}
	count := map[rune]int{'x': 2, 'u': 4, 'U': 8}[escape]
	read := func() (rune, bool) {
		if len(p.text)-p.pos < count {
			return 0, false
		}
		n, err := strconv.ParseUint(p.text[p.pos:p.pos+count], 16, 32)
		if err != nil || n > automaton.MaxRune {
			return 0, false
		}
		p.pos += count
		return rune(n), true
	}
	r, ok := read()
	if !ok {
		return 0, p.problem("\\%c needs %d hexadecimal digits", escape, count)
	}
	if r >= 0xD800 && r <= 0xDBFF && p.accept(`\u`) {
		if low, ok := read(); ok && low >= 0xDC00 && low <= 0xDFFF {
			return (r-0xD800)<<10 + (low - 0xDC00) + 0x10000, nil
		}
		return 0, p.problem("half of a pair of surrogates")
	}
	return r, nil
}

// property reads the name of a Unicode category or script.
func (p *parser) property(negative bool) (automaton.Set, error) {
	name := ""
	if p.accept("{") {
		end := strings.IndexByte(p.text[p.pos:], '}')
		if end < 0 {
			return nil, p.problem("\\p{ without its }")
		}
		name = p.text[p.pos : p.pos+end]
		p.pos += end + 1
	} else if p.pos < len(p.text) {
		name = string(p.rune())
	}
	if strings.HasPrefix(name, "^") {
		name, negative = name[1:], !negative
	}
	if _, value, ok := strings.Cut(name, "="); ok {
		name = value
	}
	key := fmt.Sprint(negative, name)
	if known, ok := p.properties[key]; ok {
		return known, nil
	}
	tables := [...]*unicode.RangeTable{unicode.Categories[name], unicode.Categories[unicode.CategoryAliases[name]],
		unicode.Scripts[name], unicode.Properties[name]}
	table := cmp.Or(tables[:]...)
	if table == nil {
		return nil, p.problem("the property \\p{%s} is not known", shown(name))
	}
	s := fromTable(table)
	if negative {
		s = s.Negate()
	}
	p.properties[key] = s
	return s, nil
}

func fromTable(t *unicode.RangeTable) automaton.Set {
	var out []automaton.Range
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			out = append(out, automaton.Range{Lo: lo, Hi: hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			out = append(out, automaton.Range{Lo: r, Hi: r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return automaton.NewSet(out...)
}

// folded returns s with the other cases of its characters. Of a range of more than 5,001 characters, it adds only the
// other cases of ASCII characters, to limit the work.
func (p *parser) folded(s automaton.Set) (automaton.Set, error) {
	if len(s) == 0 {
		return s, nil
	}
	if known, ok := p.otherCases[&s[0]]; ok {
		return known, nil
	}
	out := append([]automaton.Range(nil), s...)
	for _, r := range s {
		hi := r.Hi
		if hi-r.Lo > 5000 {
			hi = min(hi, 0x7F)
		}
		for c := r.Lo; c <= hi; c++ {
			if err := p.meter.Spend(1); err != nil {
				return nil, p.limited(err)
			}
			for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
				out = append(out, automaton.Range{Lo: f, Hi: f})
			}
		}
	}
	if err := p.meter.Keep(rangeBytes * len(out)); err != nil {
		return nil, p.limited(err)
	}
	all := automaton.NewSet(out...)
	if len(s) > 1 {
		p.otherCases[&s[0]] = all
	}
	return all, nil
}

// shown returns the beginning of a name for an error.
func shown(name string) string {
	if len(name) <= 40 {
		return name
	}
	return strings.ToValidUTF8(name[:40], "") + "..."
}
