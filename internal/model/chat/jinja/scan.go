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

// A token has its text, or for a string or a number its value.
type token struct {
	kind  kind
	text  string
	value any
	line  int
}

var (
	newlines  = regexp.MustCompile(`\r\n|\r`)
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

// isSpace is Python's str.isspace of one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// blanks counts the bytes of white space that s begins with.
func blanks(s string) int { return len(s) - len(strings.TrimLeftFunc(s, isSpace)) }

// ended is how many bytes the end of a tag takes, with the white space that it removes.
func ended(end, rest string) int {
	if strings.Contains(end, "-%}") || strings.Contains(end, "-}}") {
		return len(end) + blanks(rest[len(end):])
	}
	return len(end)
}

// scan splits a template into tokens. line is where it is.
func scan(source string, line *int) (tokens []token) {
	source = strings.TrimSuffix(newlines.ReplaceAllString(source, "\n"), "\n")
	emit := func(k kind, s string, v any) { tokens = append(tokens, token{k, s, v, *line}) }
	// before emits the text before a tag, without the blanks that the tag removes.
	starts := true // a line starts where the text does
	before := func(s string, sign byte, strips bool) {
		kept := s
		if at := strings.LastIndexByte(s, '\n') + 1; sign == '-' {
			kept = strings.TrimRightFunc(s, isSpace)
		} else if sign != '+' && strips && (at > 0 || starts) && strings.TrimLeftFunc(s[at:], isSpace) == "" {
			kept = s[:at]
		}
		if kept != "" {
			emit(data, kept, nil)
		}
		*line += strings.Count(s, "\n")
	}
	rest := source
	skip := func(n int) {
		*line += strings.Count(rest[:n], "\n")
		starts = n > 0 && rest[n-1] == '\n'
		rest = rest[n:]
	}
	for rest != "" {
		i := 0
		for i < len(rest) && !(rest[i] == '{' && i+1 < len(rest) && strings.IndexByte("{%#", rest[i+1]) >= 0) {
			i++
		}
		if i == len(rest) {
			before(rest, '+', false)
			break
		}
		opening, sign := rest[i+1], byte(0)
		if i+2 < len(rest) && (rest[i+2] == '-' || rest[i+2] == '+') {
			sign = rest[i+2]
		}
		before(rest[:i], sign, opening != '{')
		rest = rest[i:]
		if raw := rawBegin.FindString(rest); raw != "" {
			skip(ended(raw, rest))
			ends := rawEnd.FindStringSubmatchIndex(rest)
			if ends == nil {
				fail("{%% raw %%} has no {%% endraw %%}")
			}
			sign = 0
			if ends[3] > ends[2] {
				sign = rest[ends[2]]
			}
			before(rest[:ends[0]], sign, true)
			rest = rest[ends[0]:]
			skip(ended(rest[:ends[1]-ends[0]], rest))
			continue
		}
		n := 2
		if sign != 0 {
			n = 3
		}
		switch opening {
		case '#':
			at := strings.Index(rest[n:], "#}")
			if at < 0 {
				fail("a comment has no end")
			}
			stop := n + at + 2
			switch {
			case at > 0 && rest[n+at-1] == '-':
				stop += blanks(rest[stop:])
			case (at == 0 || rest[n+at-1] != '+') && strings.HasPrefix(rest[stop:], "\n"):
				stop++
			}
			skip(stop)
		case '{':
			emit(output, "{{", nil)
			skip(n)
			inside(&rest, outputEnd, skip, emit)
		default:
			emit(tag, "{%", nil)
			skip(n)
			inside(&rest, tagEnd, skip, emit)
		}
	}
	emit(end, "the end of the template", nil)
	return tokens
}

// inside splits what is inside a tag.
func inside(rest *string, ends *regexp.Regexp, skip func(int), emit func(kind, string, any)) {
	open := ""
	for {
		skip(blanks(*rest))
		s := *rest
		if stop := ends.FindString(s); stop != "" && open == "" {
			emit(closing, "the end of the tag", nil)
			skip(ended(stop, s))
			return
		}
		found := ""
		if found = floats.FindString(s); found != "" {
			f, _ := strconv.ParseFloat(strings.ReplaceAll(found, "_", ""), 64)
			emit(number, found, f)
		} else if found = integers.FindString(s); found != "" {
			i, err := strconv.ParseInt(found, 0, 64)
			if digits := strings.ReplaceAll(found, "_", ""); err != nil && strings.Trim(digits, "0123456789") == "" {
				i, err = strconv.ParseInt(digits, 10, 64)
			}
			if err != nil {
				fail("the integer %.40s is not supported", found)
			}
			emit(number, found, i)
		} else if found = names.FindString(s); found != "" {
			emit(name, found, nil)
		} else if found = texts.FindString(s); found != "" {
			emit(text, found, unescape(found[1:len(found)-1]))
		} else if found = operators.FindString(s); found != "" {
			switch found {
			case "(", "[", "{":
				open += found
			case ")", "]", "}":
				if open == "" || strings.IndexByte("([{", open[len(open)-1]) != strings.Index(")]}", found) {
					fail("%q closes nothing", found)
				}
				open = open[:len(open)-1]
			}
			emit(operator, found, nil)
		} else if s == "" {
			fail("a tag has no end")
		} else {
			r, _ := utf8.DecodeRuneInString(s)
			fail("the character %q is not expected here", r)
		}
		skip(len(found))
	}
}

var (
	escapes = regexp.MustCompile(`(?s)\\(?:[0-7]{1,3}|x[\da-fA-F]{2}|u[\da-fA-F]{4}|U[\da-fA-F]{8}|.)`)
	letters = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': `"`, '\n': "",
		'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v"}
)

// unescape reads the escapes of Python's strings.
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
