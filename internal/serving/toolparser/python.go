package toolparser

import (
	"encoding/json"
	"strconv"
	"strings"
)

// pythonWords are Python's names of JSON's constants.
var pythonWords = map[string]string{"True": "true", "False": "false", "None": "null"}

// fromPython returns the JSON of a list, tuple or dict that is written as Python shows it, such as ['a', True]. It
// translates one token after another, without recursion. ok is false if the result is not JSON, or nests deeper than
// encoding/json allows.
func fromPython(text string) (written string, ok bool) {
	if text == "" || !strings.Contains("[({", text[:1]) {
		return "", false
	}
	var out strings.Builder
	comma := "" // a comma and the space after it, which are written before the next value
	for i := 0; i < len(text); {
		c := text[i]
		if comma != "" {
			if c != ']' && c != ')' && c != '}' { // else it is the comma at the end of a list
				out.WriteString(comma)
			}
			comma = ""
		}
		switch {
		case c == ',':
			for n := i + 1; ; n++ {
				if n == len(text) || !isSpace(text[n]) {
					comma, i = text[i:n], n
					break
				}
			}
		case c == '\'' || c == '"':
			value, n := pythonString(text[i:])
			if n == 0 {
				return "", false
			}
			out.WriteString(`"` + escaped([]byte(value)) + `"`)
			i += n
		case c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z':
			n := 1
			for i+n < len(text) && (text[i+n] >= 'a' && text[i+n] <= 'z') {
				n++
			}
			word, known := pythonWords[text[i:i+n]]
			if !known {
				word = text[i : i+n] // such as true, or the e of a number
			}
			out.WriteString(word)
			i += n
		default:
			switch c {
			case '(':
				c = '['
			case ')':
				c = ']'
			}
			out.WriteByte(c)
			i++
		}
	}
	return out.String(), comma == "" && json.Valid([]byte(out.String()))
}

// pythonString reads the Python string at the beginning of text. n is its length with the quotes, or 0 if it does not end
// on its line or has an escape that Go does not know.
func pythonString(text string) (value string, n int) {
	var out strings.Builder
	quote := text[0]
	for rest := text[1:]; rest != ""; {
		if rest[0] == quote {
			return out.String(), len(text) - len(rest) + 1
		}
		r, _, tail, err := strconv.UnquoteChar(rest, quote)
		switch {
		case rest[0] == '\\' && len(rest) > 1 && (rest[1] == '\'' || rest[1] == '"'): // Go knows only the escape of the quote
			out.WriteByte(rest[1])
			rest = rest[2:]
			continue
		case rest[0] == '\n' || err != nil:
			return "", 0
		}
		out.WriteRune(r)
		rest = tail
	}
	return "", 0
}
