package lexeme

import (
	"bytes"
	"fmt"

	"llmmemory/internal/serving/structured/automaton"
)

// Form is how the characters of a text are written.
type Form int

const (
	Raw    Form = iota // as UTF-8
	Quoted             // as a JSON string, with an escape only where a character needs one, in its shortest form
	Free               // as a JSON string, with any escapes
)

// The white space before a lexeme, and between a name and its colon, is a space, or line breaks with an indentation.
// llama.cpp's grammars limit it in the same way. Without a limit, a model could write white space forever instead of
// what the form requires. A line break is "\n" or "\r\n".
//
// State.space encodes the white space that has been read:
//
//	2n            n line breaks
//	2n + 1        n line breaks, and then "\r"
//	indented + n  line breaks, then n spaces and tabs
//
// A space with no line break before it must be all of the white space. It is encoded as indented + maxIndent, because
// readSpace accepts no more white space in this state.
const (
	maxBreaks = 2  // line breaks
	maxIndent = 20 // spaces and tabs after a line break
	indented  = 100
)

// readSpace returns the state of white space after another character.
func readSpace(space, b byte) (byte, bool) {
	switch {
	case inLineBreak(space):
		return space + 1, b == '\n'
	case b == '\n' && space < 2*maxBreaks:
		return space + 2, true
	case b == '\r' && space < 2*maxBreaks:
		return space + 1, true
	case b == ' ' && space == 0:
		return indented + maxIndent, true
	case b != ' ' && b != '\t' || space == 0:
	case space < indented:
		return indented + 1, true
	case space < indented+maxIndent:
		return space + 1, true
	}
	return space, false
}

// inLineBreak reports whether white space ends with "\r", so that only "\n" can follow.
func inLineBreak(space byte) bool { return space < indented && space%2 == 1 }

// Texts is an automaton over characters, as automaton.DFA documents it.
type Texts interface {
	Class(r rune) int32
	Next(state, class int32) int32
	Tag(state int32) int32
	Segments(lo, hi rune, visit func(lo, hi rune, class int32) bool)
}

// Text returns the lexeme of the texts that d accepts. If space is set, white space may precede the
// text. Lexemes with the same nonempty key must be created with the same arguments.
func Text(key string, d Texts, form Form, space bool) *Lexeme {
	return newLexeme(key, &text{dfa: d, form: form, space: space})
}

// LimitedText returns the lexeme of the JSON strings, in the form Quoted, that d accepts. No token may have more than
// longest characters. See Text for the key.
func LimitedText(key string, d *automaton.Limited, longest int) *Lexeme {
	l := Text(key, d, Quoted, true)
	l.alike = func(pos int32) int32 { return d.Alike(pos, longest) }
	return l
}

// FreeText returns the lexeme of the free text that d accepts. The parameter end is the tag that most states
// of d have.
func FreeText(key string, d Texts, end int32) *Lexeme {
	l := Text(key, d, Raw, false)
	l.free = end
	return l
}

// RawText returns the lexeme of the texts that d accepts. If d is an automaton.Limited, no token may have more than
// longest characters. The parameter end is that of FreeText, or None.
func RawText(key string, d Texts, end int32, longest int) *Lexeme {
	l := FreeText(key, d, end)
	if limited, ok := d.(*automaton.Limited); ok {
		l.alike = func(pos int32) int32 { return limited.Alike(pos, longest) }
	}
	return l
}

// FreeEnd returns the parameter end of FreeText, or None for a lexeme that neither FreeText nor RawText made.
func (l *Lexeme) FreeEnd() int32 { return l.free }

// Name returns the lexeme of those names of members that d accepts. The names are written in the form Quoted,
// and a colon follows each.
func Name(key string, d Texts) *Lexeme {
	return newLexeme(key, &text{dfa: d, form: Quoted, space: true, colon: true})
}

// Length returns the lexeme of JSON strings with minimum to maximum characters. If maximum is below 0, there is no
// upper limit. No token may have more than longest characters.
//
// The Identity of a state contains two numbers: how many more characters are required, and how many are allowed. The
// next token has at most longest characters, so all numbers above longest have the same effect on it. For each of the
// two numbers, one fixed value replaces them.
func Length(minimum, maximum, longest int) *Lexeme {
	l := Text("", lengths{int32(minimum), int32(maximum)}, Free, true)
	l.shape = func(s State) (string, State) {
		needed := min(max(0, minimum-int(s.pos)), longest+1)
		allowed := maximum - int(s.pos)
		if maximum < 0 || allowed > longest {
			allowed = -1
		}
		if s.phase == ended || s.phase == leading {
			needed, allowed = min(minimum, longest+1), maximum
			if maximum > longest {
				allowed = -1
			}
		}
		s.pos = 0
		return fmt.Sprintf("length %d %d", needed, allowed), s
	}
	return l
}

// lengths accepts the texts with minimum to maximum characters. A state is the number of characters read. If
// maximum is below 0, there is no upper limit, and the number stops at minimum.
type lengths struct{ minimum, maximum int32 }

func (lengths) Class(rune) int32 { return 0 }

func (l lengths) Next(state, _ int32) int32 {
	switch {
	case state == l.maximum:
		return None
	case l.maximum < 0 && state == l.minimum:
		return state
	}
	return state + 1
}

func (l lengths) Tag(state int32) int32 {
	if state < l.minimum {
		return None
	}
	return 0
}

func (lengths) Segments(lo, hi rune, visit func(lo, hi rune, class int32) bool) { visit(lo, hi, 0) }

// SpecialByte begins the bytes that stand for a special token. It occurs in no UTF-8 text.
const SpecialByte = 0xFF

// SpecialBytes returns the bytes that stand for the special token with the given name.
func SpecialBytes(name string) []byte { return append([]byte{SpecialByte}, name...) }

// HasSpecial reports whether a token contains SpecialByte, which only the bytes of special tokens may
// contain.
func HasSpecial(token []byte) bool { return bytes.IndexByte(token, SpecialByte) >= 0 }

// Special returns the lexeme of the special token with a name.
func Special(name string) *Lexeme { return newLexeme("special "+name, literal(SpecialBytes(name))) }

// Literal returns the lexeme of one text, which must not be empty.
func Literal(text string) *Lexeme { return newLexeme("literal "+text, literal(text)) }

// literal accepts one sequence of bytes. State.pos is the number of bytes so far.
type literal string

func (t literal) step(s State, b byte) (State, bool) {
	if int(s.pos) == len(t) || t[s.pos] != b {
		return s, false
	}
	s.pos++
	return s, true
}

func (t literal) tag(s State) int32 {
	if int(s.pos) == len(t) {
		return 0
	}
	return None
}

type text struct {
	dfa   Texts
	form  Form
	space bool // white space may come before the text
	colon bool
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\t' || b == '\r' }

func (t *text) step(s State, b byte) (State, bool) {
	switch s.phase {
	case leading:
		if t.space && (isSpace(b) || inLineBreak(s.space)) {
			var ok bool
			s.space, ok = readSpace(s.space, b)
			return s, ok
		}
		if t.form == Raw {
			return t.readByte(State{phase: inText}, b)
		}
		return State{phase: inText}, b == '"'
	case inText:
		return t.readByte(s, b)
	case named:
		return afterName(s, b)
	}
	return s, false
}

// afterName reads the white space and the colon after a name.
func afterName(s State, b byte) (State, bool) {
	if b == ':' && !inLineBreak(s.space) {
		return State{phase: ended, pos: s.pos}, true
	}
	var ok bool
	s.space, ok = readSpace(s.space, b)
	return s, ok
}

func (t *text) tag(s State) int32 {
	switch {
	case s.phase == ended:
		return s.pos
	case s.phase == inText && t.form == Raw && s.code == 0:
		return t.dfa.Tag(s.pos)
	case s.phase == leading && t.form == Raw && s.space == 0 && !t.space:
		return t.dfa.Tag(0)
	}
	return None
}

func (t *text) readByte(s State, b byte) (State, bool) {
	if s.code != 0 {
		return t.partial(s, b)
	}
	if t.form != Raw {
		switch {
		case b == '"':
			tag := t.dfa.Tag(s.pos)
			if t.colon {
				return State{phase: named, pos: tag}, tag != None
			}
			return State{phase: ended, pos: tag}, tag != None
		case b == '\\':
			s.code = escape
			return s, t.canEscape(s.pos)
		case b < 0x20:
			return s, false
		}
	}
	return t.lead(s, b)
}

// afterRune returns the state after a whole character.
func (t *text) afterRune(s State, r rune) (State, bool) {
	return t.afterClass(s, t.dfa.Class(r))
}

func (t *text) afterClass(s State, class int32) (State, bool) {
	s.pos, s.code = t.dfa.Next(s.pos, class), 0
	return s, s.pos != None
}

// allowsAny reports whether a character from lo to hi that is not a surrogate can come next.
func (t *text) allowsAny(state int32, lo, hi rune) bool {
	found := false
	t.dfa.Segments(lo, hi, func(lo, hi rune, class int32) bool {
		found = t.dfa.Next(state, class) != None && (lo < 0xD800 || hi > 0xDFFF)
		return !found
	})
	return found
}

// uniform returns the class of the characters from lo to hi. It returns false if they have several
// classes.
func (t *text) uniform(lo, hi rune) (int32, bool) {
	first, same := int32(None), true
	t.dfa.Segments(lo, hi, func(_, _ rune, class int32) bool {
		same = first == None || first == class
		first = class
		return same
	})
	return first, same
}
