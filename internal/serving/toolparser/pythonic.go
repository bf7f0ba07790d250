package toolparser

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// pythonicCall reads a call in Python's syntax, such as look(city='Rom', days=[1, 2]), and makes JSON of its arguments.
// As in vLLM's handle_single_tool, an argument without a name is left out.
//
// Chat templates and models write texts between quotes without escaping the quotes inside. So a quote ends a text only
// if the next argument or the end of the call seems to follow. A text may have line breaks.
type pythonicCall struct {
	out   *output
	known func(string) bool // if not nil, the function must be known

	state     pythonicState
	held      []byte // a name, a value that is no text, an escape, or what follows a quote
	named     bool   // the current argument has a name
	arguments int
	quote     byte // around the current text, or inside the current value
	triple    bool // the text is between three quotes
	begun     bool // the text is not empty
	escaped   bool // inside a value
	depth     int  // of brackets in a value
}

type pythonicState uint8

const (
	functionName pythonicState = iota
	argumentBegin
	argumentName
	valueBegins
	otherValue // a value that is no text
	insideText
	textEscape
	afterQuote       // held has the quote that may end the text, and what follows
	afterComma       // after such a quote
	nextArgument     // in the name after that comma
	afterName        // and the space after it
	afterParenthesis // after such a quote
	argumentEnd
)

func (c *pythonicCall) next(b byte) progress {
	switch c.state {
	case functionName:
		return c.readName(b)
	case argumentBegin:
		switch {
		case isSpace(b) || b == ',':
			return unfinished
		case b == ')':
			return c.stop(ended)
		}
		c.state, c.held, c.named = argumentName, c.held[:0], false
		if !isWord(b) {
			c.state = valueBegins
		}
		return c.next(b)
	case argumentName:
		return c.readArgumentName(b)
	case valueBegins:
		switch {
		case isSpace(b):
			return unfinished
		case b == '\'' || b == '"':
			c.state, c.held, c.quote, c.triple, c.begun = insideText, c.held[:0], b, false, false
			c.show(`"`)
			return unfinished
		}
		c.state, c.held, c.quote, c.escaped, c.depth = otherValue, c.held[:0], 0, false, 0
		return c.next(b)
	case otherValue:
		return c.readValue(b)
	case insideText, textEscape:
		c.readText(b)
		return unfinished
	case argumentEnd:
		switch {
		case isSpace(b):
			return unfinished
		case b == ',':
			c.state = argumentBegin
			return unfinished
		case b == ')':
			return c.stop(ended)
		}
		return c.stop(passed)
	}
	return c.readAfterQuote(b)
}

func (c *pythonicCall) readName(b byte) progress {
	switch {
	case b == '(':
		name := string(c.held)
		if !IsName(name) || c.known != nil && !c.known(name) {
			return failed
		}
		c.state = argumentBegin
		c.out.call("", name)
		return unfinished
	case !IsName(string(b)) || len(c.held) == maxName:
		return failed
	}
	c.held = append(c.held, b)
	return unfinished
}

// isWord reports whether b can be a part of the name of an argument.
func isWord(b byte) bool {
	return b == '_' || b == '-' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= utf8.RuneSelf
}

func (c *pythonicCall) readArgumentName(b byte) progress {
	switch {
	case b == '=':
		separator := "{"
		if c.arguments++; c.arguments > 1 {
			separator = ", "
		}
		c.named, c.state = true, valueBegins
		c.show(separator + `"` + escaped(c.held) + `": `)
	case isSpace(b):
	case isWord(b) && len(c.held) < maxName:
		c.held = append(c.held, b)
	default: // a value without a name
		c.state, c.quote, c.escaped, c.depth = otherValue, 0, false, 0
		return c.next(b)
	}
	return unfinished
}

// readValue reads a byte of a value that is no text.
func (c *pythonicCall) readValue(b byte) progress {
	switch {
	case c.escaped:
		c.escaped = false
	case c.quote != 0 && b == '\\':
		c.escaped = true
	case b == c.quote:
		c.quote = 0
	case c.quote != 0:
	case b == '\'' || b == '"':
		c.quote = b
	case strings.IndexByte("([{", b) >= 0:
		c.depth++
	case c.depth == 0 && (b == ',' || b == ')'):
		c.endValue()
		return c.next(b)
	case c.depth > 0 && strings.IndexByte(")]}", b) >= 0:
		c.depth--
	}
	c.held = append(c.held, b)
	return unfinished
}

func (c *pythonicCall) endValue() {
	c.out.looked += len(c.held)
	text := strings.TrimSpace(string(c.held))
	if n, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, 64); err == nil { // such as 07
		text = strconv.FormatInt(n, 10)
	} else if x, err := strconv.ParseFloat(text, 64); err == nil && !json.Valid([]byte(text)) { // such as .5
		if number, err := json.Marshal(x); err == nil {
			text = string(number)
		}
	}
	c.show(asJSON([]byte(text), StructureParameter))
	c.state, c.held = argumentEnd, c.held[:0]
}

// readText reads a byte of a text, or of an escape in it.
func (c *pythonicCall) readText(b byte) {
	if c.state == textEscape {
		c.readEscape(b)
		return
	}
	if b != c.quote && c.triple && len(c.held) > 0 {
		c.text(c.held)
		c.held = c.held[:0]
	}
	switch {
	case b == '\\':
		c.state, c.held = textEscape, append(c.held[:0], b)
	case b == c.quote && !c.triple && !c.named:
		c.endText()
	case b == c.quote && !c.triple:
		c.state, c.held = afterQuote, append(c.held[:0], b)
	case b == c.quote:
		if c.held = append(c.held, b); len(c.held) == 3 {
			c.held = c.held[:0]
			c.endText()
		}
	default:
		c.text([]byte{b})
	}
}

func (c *pythonicCall) text(text []byte) {
	c.begun = true
	c.show(escaped(text))
}

func (c *pythonicCall) endText() {
	c.show(`"`)
	c.state = argumentEnd
}

// pythonEscapes are Python's escapes of one character, as JSON writes them.
var pythonEscapes = map[byte]string{'n': `\n`, 't': `\t`, 'r': `\r`, 'b': `\b`, 'f': `\f`, 'a': `\u0007`, 'v': `\u000b`, '0': `\u0000`,
	'\\': `\\`, '\'': `'`, '"': `\"`, '\n': ""}

// hexDigits are the numbers of digits of Python's escapes with hexadecimal digits.
var hexDigits = map[byte]int{'x': 2, 'u': 4, 'U': 8}

// readEscape reads a byte of an escape. An escape that Python does not have is text.
func (c *pythonicCall) readEscape(b byte) {
	c.begun = true
	if len(c.held) == 1 {
		if written, ok := pythonEscapes[b]; ok {
			c.show(written)
			c.state, c.held = insideText, c.held[:0]
			return
		}
		if hexDigits[b] > 0 {
			c.held = append(c.held, b)
			return
		}
	}
	hex := b >= '0' && b <= '9' || b >= 'a' && b <= 'f' || b >= 'A' && b <= 'F'
	if len(c.held) > 1 && hex {
		if c.held = append(c.held, b); len(c.held) < 2+hexDigits[c.held[1]] {
			return
		}
	}
	held := string(c.held)
	c.state, c.held = insideText, c.held[:0]
	switch {
	case len(held) == 1 || !hex:
		c.text([]byte(held))
		c.readText(b)
	case held[1] == 'x':
		c.show(`\u00` + held[2:])
	case held[1] == 'u':
		c.show(`\u` + held[2:])
	default:
		if n, err := strconv.ParseInt(held[2:], 16, 32); err == nil && utf8.ValidRune(rune(n)) {
			held = string(rune(n))
		}
		c.text([]byte(held))
	}
}

// readAfterQuote reads a byte after a quote. The quote ends the text if, after a comma, a name and "=" follow, or if
// after the parenthesis that ends the call, there is a comma, a bracket or a marker. Otherwise it is a part of the text.
func (c *pythonicCall) readAfterQuote(b byte) progress {
	followed := false
	switch {
	case c.state == afterQuote && b == c.quote && len(c.held) == 1 && !c.begun:
		c.state, c.held, c.triple = insideText, c.held[:0], true
		return unfinished
	case isSpace(b):
		if c.state == nextArgument {
			c.state = afterName
		}
	case c.state == afterQuote && b == ',':
		c.state = afterComma
	case (c.state == afterQuote || c.state == afterComma) && b == ')':
		c.state = afterParenthesis
	case (c.state == afterComma || c.state == nextArgument) && isWord(b):
		c.state = nextArgument
	case (c.state == nextArgument || c.state == afterName) && b == '=',
		c.state == afterParenthesis && (b == ',' || b == ']' || b == '<'):
		followed = true
	default:
		held := c.held
		c.state, c.held = insideText, nil
		c.text(held)
		return c.next(b)
	}
	if !followed {
		c.held = append(c.held, b)
		return unfinished
	}
	call, rest := c.state == afterParenthesis, c.held[1:]
	c.held = nil
	c.endText()
	if call {
		return c.stop(endedBefore)
	}
	for _, b := range rest {
		c.next(b)
	}
	return c.next(b)
}

// show shows a part of an argument that has a name.
func (c *pythonicCall) show(text string) {
	if c.named {
		c.out.text(Arguments, []byte(text))
	}
}

// stop ends the arguments, if the call has begun, and returns p.
func (c *pythonicCall) stop(p progress) progress {
	if c.out.open {
		c.named = true
		if c.arguments == 0 {
			c.show("{")
		}
		c.show("}")
	}
	return p
}

func (c *pythonicCall) close() {
	if !c.out.open {
		return
	}
	switch c.state {
	case valueBegins, otherValue:
		c.endValue()
	case insideText, textEscape:
		c.text(c.held)
		c.endText()
	case afterQuote, afterComma, nextArgument, afterName, afterParenthesis:
		c.endText()
	}
	c.stop(ended)
}
