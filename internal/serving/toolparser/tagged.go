package toolparser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Tagged describes calls with arguments as texts between tags, such as
//
//	<function=look><parameter=city>
//	Rom
//	</parameter></function>
//
// or, if Value is not "",
//
//	look
//	<arg_key>city</arg_key>
//	<arg_value>Rom</arg_value>
//
// A line break at the beginning of a value is not part of it. Neither is one before the value's end.
type Tagged struct {
	Parameter, ParameterEnd string // around a name and its value
	NameEnd, Value          string // between the name of a parameter and its value, perhaps with space; if both are "", ">"
	End                     string
}

// Between returns the text that a model writes between the name of a parameter and its value.
func (t *Tagged) Between() string {
	if t.Value == "" {
		return ">\n"
	}
	return t.NameEnd + "\n" + t.Value
}

// EndOfName returns the text that ends the name of a parameter.
func (t *Tagged) EndOfName() string {
	if t.Value == "" {
		return ">"
	}
	return t.NameEnd
}

// A ParameterKind says which JSON value the text of a parameter between tags means.
type ParameterKind uint8

// Kinds of parameters.
const (
	JSONParameter       ParameterKind = iota // JSON, or true, false, null or none in any case; other text is a string
	TextParameter                            // text
	TextOrNullParameter                      // text, of which null and none mean null in any case
	StructureParameter                       // like JSONParameter, also a list or an object as Python writes it
)

// taggedCall reads a call from the name of its function on.
type taggedCall struct {
	tags *Tagged
	kind func(tool, parameter string) ParameterKind
	out  *output

	calls     *calls
	ends      []string // of values
	state     taggedState
	name      string
	held      []byte // a name, a part of a tag, or what is not shown of a value
	valueKind ParameterKind
	values    int
}

type taggedState uint8

const (
	taggedName taggedState = iota
	betweenParameters
	parameterName
	valueTag // before Tagged.Value
	valueBegin
	insideValue
)

func newTaggedCall(c *calls) *taggedCall {
	end := c.parser.Tagged.ParameterEnd
	return &taggedCall{tags: c.parser.Tagged, kind: c.kind, out: c.out, calls: c, ends: []string{"\n" + end, end}}
}

func (t *taggedCall) next(b byte) progress {
	switch {
	case t.state == valueBegin && b == '\n':
		t.state = insideValue
		return unfinished
	case t.state == valueBegin:
		t.state = insideValue
	case t.tags.Value == "" && (t.state == taggedName || t.state == parameterName) && b == '>':
		return t.named()
	case t.tags.Value != "" && t.state == taggedName && (b == '\n' || b == '<'):
		p := t.named()
		if b == '<' {
			t.held = append(t.held, b)
		}
		return p
	}
	t.held = append(t.held, b)
	switch {
	case t.state == insideValue:
		t.read()
	case t.state == betweenParameters:
		return t.readTag()
	case t.state == valueTag:
		return t.readValueTag()
	case t.state == parameterName && t.tags.Value != "" && t.out.completes(t.held, []string{t.tags.NameEnd}) != "":
		t.held = t.held[:len(t.held)-len(t.tags.NameEnd)]
		p := t.named()
		t.state = valueTag
		return p
	case len(t.held) > maxName:
		return t.stop(failed)
	}
	return unfinished
}

// stop ends the call, because the text that follows cannot be part of it. It finishes arguments that were
// begun, and returns p.
func (t *taggedCall) stop(p progress) progress {
	if t.out.open {
		t.finish()
	}
	return p
}

// pass ends the call before the last bytes, which began like a tag but are no tag.
func (t *taggedCall) pass() progress {
	t.calls.unread = append([]byte(nil), t.held[:len(t.held)-1]...)
	return t.stop(passed)
}

// named ends the name of the function or of a parameter.
func (t *taggedCall) named() progress {
	name := strings.TrimSpace(string(t.held))
	t.held = t.held[:0]
	if t.state == taggedName {
		if !IsName(name) {
			t.held = nil
			return failed
		}
		t.name, t.state = name, betweenParameters
		t.out.call("", name)
		return unfinished
	}
	separator := "{"
	if t.values++; t.values > 1 {
		separator = ", "
	}
	t.show(separator + `"` + escaped([]byte(name)) + `": `)
	t.state, t.valueKind = valueBegin, JSONParameter
	if t.kind != nil {
		t.valueKind = t.kind(t.name, name)
	}
	if t.valueKind == TextParameter {
		t.show(`"`)
	}
	return unfinished
}

// readTag reads a tag outside parameters.
func (t *taggedCall) readTag() progress {
	if t.out.spaceAfter(t.held, space) > 0 { // no tag has begun
		t.held = t.held[:0]
		return unfinished
	}
	switch {
	case string(t.held) == t.tags.Parameter:
		t.state, t.held = parameterName, t.held[:0]
	case string(t.held) == t.tags.End:
		return t.stop(ended)
	case !t.out.begins([]string{t.tags.Parameter, t.tags.End}, t.held):
		return t.pass()
	}
	return unfinished
}

// readValueTag reads the tag before a value.
func (t *taggedCall) readValueTag() progress {
	switch {
	case t.out.spaceAfter(t.held, space) > 0: // the tag has not begun
		t.held = t.held[:0]
	case string(t.held) == t.tags.Value:
		t.state, t.held = valueBegin, t.held[:0]
	case !t.out.begins([]string{t.tags.Value}, t.held):
		return t.pass()
	}
	return unfinished
}

// read reads a part of a value.
func (t *taggedCall) read() {
	if m := t.out.completes(t.held, t.ends); m != "" {
		t.held = t.held[:len(t.held)-len(m)]
		t.endValue()
	} else if t.valueKind == TextParameter {
		n := len(t.held) - t.out.partialMarker(t.held, t.ends)
		t.show(escaped(t.held[:n]))
		t.held = append(t.held[:0], t.held[n:]...)
	}
}

func (t *taggedCall) endValue() {
	t.out.looked += len(t.held)
	if t.valueKind == TextParameter {
		t.show(escaped(t.held) + `"`)
	} else {
		t.show(asJSON(t.held, t.valueKind))
	}
	t.state, t.held = betweenParameters, t.held[:0]
}

// asJSON returns a value that is written as text.
func asJSON(value []byte, kind ParameterKind) string {
	text := string(bytes.TrimSpace(value))
	switch lower := strings.ToLower(text); {
	case lower == "null", lower == "none":
		return "null"
	case kind == TextOrNullParameter:
	case lower == "true", lower == "false":
		return lower
	case json.Valid([]byte(text)):
		return text
	case kind == StructureParameter:
		if written, ok := fromPython(text); ok {
			return written
		}
	}
	return `"` + escaped(value) + `"`
}

// escaped returns text as it is written inside a JSON string. The caller may escape a long text piece by
// piece, even if a piece ends inside a character.
func escaped(text []byte) string {
	var out strings.Builder
	for _, b := range text {
		switch {
		case b == '"' || b == '\\':
			out.Write([]byte{'\\', b})
		case b == '\n':
			out.WriteString(`\n`)
		case b < ' ':
			fmt.Fprintf(&out, `\u%04x`, b)
		default:
			out.WriteByte(b)
		}
	}
	return out.String()
}

func (t *taggedCall) show(text string) { t.out.text(Arguments, []byte(text)) }

// finish ends the arguments.
func (t *taggedCall) finish() {
	if t.state == valueTag {
		t.held = t.held[:0]
	}
	if t.state >= valueTag {
		t.endValue()
	}
	if t.values == 0 {
		t.show("{")
	}
	t.show("}")
}

func (t *taggedCall) close() { t.stop(ended) }
