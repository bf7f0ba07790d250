package build

import (
	"bytes"
	"slices"
)

// A token is one of C's preprocessing tokens. The text of a digraph is that of the usual spelling.
type token struct {
	kind    kind
	text    string
	line    int
	first   bool // the first of its line
	odd     bool // part of it was written as a trigraph
	digraph bool
}

type kind int

const (
	word kind = iota
	literal
	header // after #include
	mark
	newline
)

// A scanner splits a source into tokens, after the first three of C's translation phases: it replaces trigraphs, joins
// lines that end with a backslash, and removes comments. The gate checks the tokens of a submission, so the scanner
// must find all code that gcc compiles. Where gcc accepts more than the C standard, the scanner accepts it, too: there
// may be blanks between the backslash and the end of the line.
type scanner struct {
	text  []byte
	lines []int32 // line of each byte
	odd   []bool  // whether a byte was written as a trigraph
	pos   int
	start bool     // of a line
	words [2]token // the first two of this line, until a header name is impossible
}

var trigraphs = map[byte]byte{'=': '#', '/': '\\', '\'': '^', '(': '[', ')': ']', '!': '|', '<': '{', '>': '}', '-': '~'}

func newScanner(source []byte) *scanner {
	source = bytes.TrimPrefix(source, []byte("\xef\xbb\xbf"))
	s := &scanner{text: make([]byte, 0, len(source)+1), start: true}
	line, odd := int32(1), false
	for i := 0; i < len(source); i++ {
		c := source[i]
		if c == '\r' && i+1 < len(source) && source[i+1] == '\n' {
			continue
		}
		if c == '?' && i+2 < len(source) && source[i+1] == '?' && trigraphs[source[i+2]] != 0 {
			c, odd = trigraphs[source[i+2]], true
			i += 2
		}
		if c == '\\' {
			end := i + 1
			for end < len(source) && bytes.IndexByte([]byte(" \t\f\v\r"), source[end]) >= 0 {
				end++
			}
			if end < len(source) && source[end] == '\n' {
				i = end
				line++
				continue
			}
		}
		s.text, s.lines, s.odd = append(s.text, c), append(s.lines, line), append(s.odd, odd)
		odd = false
		if c == '\n' {
			line++
		}
	}
	s.text, s.lines, s.odd = append(s.text, '\n'), append(s.lines, line), append(s.odd, false)
	return s
}

// peek returns the byte n ahead, or 0 after the end.
func (s *scanner) peek(n int) byte {
	if s.pos+n < len(s.text) {
		return s.text[s.pos+n]
	}
	return 0
}

// next returns the next token, or false at the end.
func (s *scanner) next() (token, bool) {
	s.blank()
	if s.pos >= len(s.text) {
		return token{}, false
	}
	begin := s.pos
	t := token{kind: mark, line: int(s.lines[begin]), first: s.start}
	s.start = false
	switch c := s.peek(0); {
	case c == '\n':
		s.pos++
		t.kind, s.start = newline, true
	case s.words[0].text == "#" && s.words[0].first && included(s.words[1].text) && s.header():
		t.kind = header
	case c == '"' || c == '\'':
		s.quoted(c)
		t.kind = literal
	case letter(c):
		for letter(s.peek(0)) || digit(s.peek(0)) {
			s.pos++
		}
		t.kind = word
	case digit(c) || c == '.' && digit(s.peek(1)):
		s.number()
		t.kind = literal
	default:
		s.pos += s.punctuation()
	}
	t.text = string(s.text[begin:s.pos])
	if usual := digraphs[t.text]; usual != "" {
		t.text, t.digraph = usual, true
	}
	t.odd = slices.Contains(s.odd[begin:s.pos], true)
	s.remember(t)
	return t, true
}

func included(directive string) bool {
	return directive == "include" || directive == "include_next" || directive == "import" || directive == "embed"
}

func (s *scanner) remember(t token) {
	switch {
	case t.kind == newline:
		s.words = [2]token{}
	case t.first:
		s.words[0] = t
	case s.words[1].text == "" && s.words[0].text != "":
		s.words[1] = t
	case s.words[1].text != "":
		s.words[0] = token{} // a header name can only be the third
	}
}

// blank skips white space and comments, but not line ends.
func (s *scanner) blank() {
	for s.pos < len(s.text) {
		switch c := s.peek(0); {
		case c == ' ' || c == '\t' || c == '\f' || c == '\v':
			s.pos++
		case c == '/' && s.peek(1) == '/' && !s.odd[s.pos] && !s.odd[s.pos+1]:
			for s.peek(0) != '\n' {
				s.pos++
			}
		case c == '/' && s.peek(1) == '*' && !s.odd[s.pos] && !s.odd[s.pos+1]:
			end := bytes.Index(s.text[s.pos+2:], []byte("*/"))
			if end < 0 {
				s.pos = len(s.text)
				return
			}
			s.pos += 2 + end + 2
		default:
			return
		}
	}
}

// header reads the name of a header, <...> or "...", in which a backslash has no special meaning. It returns false if
// there is no header name at the current position.
func (s *scanner) header() bool {
	closing := map[byte]byte{'<': '>', '"': '"'}[s.peek(0)]
	end := bytes.IndexByte(s.text[s.pos+1:], closing)
	if closing == 0 || end < 0 || bytes.IndexByte(s.text[s.pos+1:][:end], '\n') >= 0 {
		return false
	}
	s.pos += end + 2
	return true
}

// quoted reads a string or character constant up to the quotation mark or the end of the line.
func (s *scanner) quoted(quote byte) {
	for s.pos++; s.peek(0) != '\n'; s.pos++ {
		if s.peek(0) == quote {
			s.pos++
			return
		}
		if s.peek(0) == '\\' && s.peek(1) != '\n' {
			s.pos++
		}
	}
}

func (s *scanner) number() {
	for {
		c := s.peek(0)
		if sign := s.peek(1); (c|0x20 == 'e' || c|0x20 == 'p') && (sign == '+' || sign == '-') {
			s.pos += 2
		} else if c == '.' || letter(c) || digit(c) {
			s.pos++
		} else {
			return
		}
	}
}

var digraphs = map[string]string{"%:%:": "##", "%:": "#", "<:": "[", ":>": "]", "<%": "{", "%>": "}"}

// punctuation returns the length of the punctuator at s.pos. A longer punctuator that no rule needs, such as &&, is read
// as several punctuators of length 1. In << there is no digraph, whatever follows.
func (s *scanner) punctuation() int {
	for _, long := range []string{"%:%:", "%:", "<<", "<:", ":>", "<%", "%>", "##"} {
		if bytes.HasPrefix(s.text[s.pos:], []byte(long)) {
			return len(long)
		}
	}
	return 1
}

func letter(c byte) bool {
	return c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c == '$' || c >= 0x80
}

func digit(c byte) bool { return c >= '0' && c <= '9' }
