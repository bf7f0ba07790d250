package gbnf

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/serving/structured/automaton"
)

// literal reads up to the closing quote.
func (p *parser) literal(quote byte) (*node, error) {
	var text []byte
	for {
		if p.pos == len(p.text) || p.text[p.pos] == '\n' {
			return nil, p.problem("a literal without its closing quote")
		}
		if p.text[p.pos] == quote {
			p.pos++
			break
		}
		r, err := p.char()
		if err != nil {
			return nil, err
		}
		text = utf8.AppendRune(text, r)
	}
	if err := p.charge(len(text)/16, len(text)); err != nil {
		return nil, err
	}
	return p.node(node{kind: literal, text: string(text)})
}

// rangeBytes is about what a range takes while the set that contains it is made.
const rangeBytes = 24

// class reads up to the closing bracket.
func (p *parser) class() (*node, error) {
	negative := false
	if p.pos < len(p.text) && p.text[p.pos] == '^' {
		negative = true
		p.pos++
	}
	var ranges []automaton.Range
	for {
		if p.pos == len(p.text) {
			return nil, p.problem("a [ without its ]")
		}
		if p.text[p.pos] == ']' {
			p.pos++
			break
		}
		low, err := p.char()
		if err != nil {
			return nil, err
		}
		high := low
		if strings.HasPrefix(p.text[p.pos:], "-") && !strings.HasPrefix(p.text[p.pos:], "-]") {
			p.pos++
			if p.pos == len(p.text) {
				return nil, p.problem("a [ without its ]")
			}
			if high, err = p.char(); err != nil {
				return nil, err
			}
		}
		if high < low {
			return nil, p.problem("a range of characters whose end is before its begin")
		}
		if err := p.charge(1, rangeBytes); err != nil {
			return nil, err
		}
		ranges = append(ranges, automaton.Range{Lo: low, Hi: high})
	}
	set := automaton.NewSet(ranges...)
	if negative {
		set = set.Negate()
	}
	return p.node(node{set: set})
}

// char reads a character of a literal or a class.
func (p *parser) char() (rune, error) {
	r := p.rune()
	if r == utf8.RuneError {
		return 0, p.problem("the grammar is not UTF-8")
	}
	if r != '\\' {
		return r, nil
	}
	if p.pos == len(p.text) {
		return 0, p.problem("nothing after a \\")
	}
	digits := 0
	switch r = p.rune(); r {
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return 0, p.problem("the escape \\%c is not known", r)
		}
		return r, nil
	}
	if len(p.text)-p.pos >= digits {
		if n, err := strconv.ParseUint(p.text[p.pos:p.pos+digits], 16, 32); err == nil && utf8.ValidRune(rune(n)) && n <= automaton.MaxRune {
			p.pos += digits
			return rune(n), nil
		}
	}
	return 0, p.problem("\\%c needs %d hexadecimal digits of a character", r, digits)
}
