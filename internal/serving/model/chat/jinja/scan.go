package jinja

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind int

const (
	end     kind = iota // of the template
	data                // text outside of tags
	output              // {{
	tag                 // {%
	closing             // }} or %}
	name
	text // a string
	number
	operator
)

// A token is a name, operator, string or number in a tag, the beginning or the end of a tag, or text outside of
// tags. Strings and numbers also have a value.
type token struct {
	kind  kind
	text  string
	value any
	line  int
}

var (
	newlines  = regexp.MustCompile(`\r\n|\r`)
	tagBegin  = regexp.MustCompile(`\{[{%#][-+]?`)
	rawBegin  = regexp.MustCompile(`^\{%[-+]?\s*raw\s*-?%\}`)
	rawEnd    = regexp.MustCompile(`\{%([-+]?)\s*endraw\s*(?:\+%\}|-%\}|%\}\n?)`)
	tagEnd    = regexp.MustCompile(`^(?:\+%\}|-%\}|%\}\n?)`)
	outputEnd = regexp.MustCompile(`^-?\}\}`)
	floats    = regexp.MustCompile(`^\d[\d_]*(?:(?:\.\d[\d_]*)?[eE][+-]?\d[\d_]*|\.\d[\d_]*)`)
	integers  = regexp.MustCompile(`^(?:0[bB][01_]+|0[oO][0-7_]+|0[xX][\da-fA-F_]+|\d[\d_]*)`)
	names     = regexp.MustCompile(`^[\p{L}_][\p{L}\p{N}\p{M}_]*`)
	texts     = regexp.MustCompile(`(?s)^(?:'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*")`)
	operators = regexp.MustCompile(`^(?://|\*\*|==|!=|>=|<=|[-+/*%~\[\](){}<>=.:|,])`)
)

// isSpace reports whether Python's str.isspace is true for the character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func blanks(s string) int { return len(s) - len(strings.TrimLeftFunc(s, isSpace)) }

// tagLength returns how many bytes of rest belong to the end of a tag. rest begins with the string end, such as %} or
// -%}. If this string has the sign -, the tag also removes the white space after it, and the result includes this white
// space.
func tagLength(end, rest string) int {
	if strings.Contains(end, "-%}") || strings.Contains(end, "-}}") {
		return len(end) + blanks(rest[len(end):])
	}
	return len(end)
}

type scanner struct {
	rest   string
	line   *int // the line of rest
	starts bool // rest is at the start of a line
	tokens []token
}

// scan splits a template into tokens. While it runs, it sets *line to the number of the current line, which callers
// need for errors.
func scan(source string, line *int) []token {
	s := &scanner{rest: strings.TrimSuffix(newlines.ReplaceAllString(source, "\n"), "\n"), line: line, starts: true}
	for s.rest != "" {
		bounds := tagBegin.FindStringIndex(s.rest)
		if bounds == nil {
			s.data(len(s.rest), '+', false)
			break
		}
		opening, sign, width := s.rest[bounds[0]+1], byte(0), bounds[1]-bounds[0]
		if width == 3 {
			sign = s.rest[bounds[0]+2]
		}
		s.data(bounds[0], sign, opening != '{')
		switch {
		case opening == '#':
			s.comment(width)
		case opening == '{':
			s.emit(output, "{{", nil)
			s.skip(width)
			s.scanTag(outputEnd)
		case !s.raw():
			s.emit(tag, "{%", nil)
			s.skip(width)
			s.scanTag(tagEnd)
		}
	}
	s.emit(end, "the end of the template", nil)
	return s.tokens
}

func (s *scanner) emit(k kind, text string, v any) {
	s.tokens = append(s.tokens, token{k, text, v, *s.line})
}

func (s *scanner) skip(n int) {
	*s.line += strings.Count(s.rest[:n], "\n")
	s.starts = n > 0 && s.rest[n-1] == '\n'
	s.rest = s.rest[n:]
}

// data emits the n bytes of text before a tag. It leaves out the white space before the tag if the tag's sign is
// '-'. If strips is true and the tag has no sign, it leaves out the white space between the start of the line and
// the tag.
func (s *scanner) data(n int, sign byte, strips bool) {
	before := s.rest[:n]
	kept := before
	if lineStart := strings.LastIndexByte(before, '\n') + 1; sign == '-' {
		kept = strings.TrimRightFunc(before, isSpace)
	} else if sign != '+' && strips && (lineStart > 0 || s.starts) && strings.TrimLeftFunc(before[lineStart:], isSpace) == "" {
		kept = before[:lineStart]
	}
	if kept != "" {
		s.emit(data, kept, nil)
	}
	*s.line += strings.Count(before, "\n")
	s.rest = s.rest[n:]
}

func (s *scanner) raw() bool {
	begin := rawBegin.FindString(s.rest)
	if begin == "" {
		return false
	}
	s.skip(tagLength(begin, s.rest))
	ends := rawEnd.FindStringSubmatchIndex(s.rest)
	if ends == nil {
		fail("{%% raw %%} has no {%% endraw %%}")
	}
	sign := byte(0)
	if ends[3] > ends[2] {
		sign = s.rest[ends[2]]
	}
	s.data(ends[0], sign, true)
	s.skip(tagLength(s.rest[:ends[1]-ends[0]], s.rest))
	return true
}

func (s *scanner) comment(n int) {
	length := strings.Index(s.rest[n:], "#}")
	if length < 0 {
		fail("a comment has no end")
	}
	stop := n + length + 2
	switch last := s.rest[n+length-1]; {
	case length > 0 && last == '-':
		stop += blanks(s.rest[stop:])
	case (length == 0 || last != '+') && strings.HasPrefix(s.rest[stop:], "\n"):
		stop++
	}
	s.skip(stop)
}

func (s *scanner) scanTag(ends *regexp.Regexp) {
	unclosed := ""
	for {
		s.skip(blanks(s.rest))
		if stop := ends.FindString(s.rest); stop != "" && unclosed == "" {
			s.emit(closing, "the end of the tag", nil)
			s.skip(tagLength(stop, s.rest))
			return
		}
		found := ""
		if found = floats.FindString(s.rest); found != "" {
			f, _ := strconv.ParseFloat(strings.ReplaceAll(found, "_", ""), 64)
			s.emit(number, found, f)
		} else if found = integers.FindString(s.rest); found != "" {
			s.emit(number, found, integer(found))
		} else if found = names.FindString(s.rest); found != "" {
			s.emit(name, found, nil)
		} else if found = texts.FindString(s.rest); found != "" {
			s.emit(text, found, unescape(found[1:len(found)-1]))
		} else if found = operators.FindString(s.rest); found != "" {
			unclosed = brackets(unclosed, found)
			s.emit(operator, found, nil)
		} else if s.rest == "" {
			fail("a tag has no end")
		} else {
			r, _ := utf8.DecodeRuneInString(s.rest)
			fail("the character %q is not expected here", r)
		}
		s.skip(len(found))
	}
}

func integer(s string) int64 {
	i, err := strconv.ParseInt(s, 0, 64)
	if digits := strings.ReplaceAll(s, "_", ""); err != nil && strings.Trim(digits, "0123456789") == "" {
		i, err = strconv.ParseInt(digits, 10, 64)
	}
	if err != nil {
		fail("the integer %.40s is not supported", s)
	}
	return i
}

func brackets(unclosed, operator string) string {
	switch operator {
	case "(", "[", "{":
		return unclosed + operator
	case ")", "]", "}":
		if unclosed == "" || strings.IndexByte("([{", unclosed[len(unclosed)-1]) != strings.Index(")]}", operator) {
			fail("%q closes nothing", operator)
		}
		return unclosed[:len(unclosed)-1]
	}
	return unclosed
}

var (
	escapes = regexp.MustCompile(`(?s)\\(?:[0-7]{1,3}|x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|.)`)
	letters = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': `"`, '\n': "",
		'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v"}
)

func unescape(s string) string {
	return escapes.ReplaceAllStringFunc(s, func(e string) string {
		if plain, ok := letters[e[1]]; ok {
			return plain
		}
		base, digits := 16, e[2:]
		switch {
		case e[1] == 'N':
			fail(`the escape \N is not supported`)
		case e[1] >= '0' && e[1] <= '7':
			base, digits = 8, e[1:]
		case digits == "":
			return e
		}
		r, _ := strconv.ParseUint(digits, base, 32)
		return string(rune(r))
	})
}
