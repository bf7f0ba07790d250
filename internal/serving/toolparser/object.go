package toolparser

import (
	"encoding/json"
	"slices"
	"strings"
)

// value finds the end of a JSON value. It does not check the value.
type value struct {
	started, counts bool // counts means that the byte at which next returned true is part of the value
	text, escaped   bool // inside a string
	depth           int
	first           byte
}

// next returns true at the end of the value.
func (v *value) next(b byte) bool {
	if !v.started {
		if isSpace(b) {
			return false
		}
		v.started, v.first = true, b
	}
	switch {
	case v.escaped:
		v.escaped = false
	case v.text && b == '\\':
		v.escaped = true
	case b == '"':
		v.text = !v.text
		v.counts = !v.text && v.depth == 0
		return v.counts
	case v.text:
	case b == '{' || b == '[':
		v.depth++
	case b == '}' || b == ']':
		v.depth--
		v.counts = v.depth == 0
		return v.depth <= 0
	case v.depth == 0 && (b == ',' || isSpace(b) || b == ':'):
		return true
	}
	return false
}

// object reads a call that is a JSON object.
type object struct {
	out   *output
	known func(string) bool // if not nil, the name must be known, and other members than those of calls are not allowed

	state  objectState
	depth  int // 1 inside the member function
	key    []byte
	member string // the current one of memberNames, or ""
	value  value
	raw    []byte // of the value, if it is kept
	name   string
	args   []byte // read before the name, or not an object
	given  bool   // arguments
	stream bool   // the value is shown as it comes
}

type objectState uint8

const (
	objectBegin objectState = iota
	keyBegin
	inKey
	colon
	inValue
	memberEnd
)

// memberNames are the members of a call.
var memberNames = []string{"name", "arguments", "parameters", "function", "type", "id"}

func (o *object) next(b byte) progress {
	switch o.state {
	case inKey:
		o.key = append(o.key, b)
		if o.value.next(b) {
			return o.keyDone()
		}
		if o.known != nil && !o.out.begins(memberNames, o.key[1:]) {
			return failed
		}
		return unfinished
	case inValue:
		return o.readValue(b)
	}
	switch {
	case isSpace(b):
		return unfinished
	case o.state == objectBegin: // a brace
		o.state = keyBegin
		return unfinished
	case o.state == keyBegin && b == '"':
		o.state, o.key, o.value = inKey, o.key[:0], value{}
		return o.next(b)
	case o.state == colon && b == ':':
		o.state, o.value, o.raw = inValue, value{}, o.raw[:0]
		return unfinished
	case o.state == memberEnd && b == ',':
		o.state = keyBegin
		return unfinished
	case o.state != colon && b == '}':
		return o.end()
	case o.out.open:
		return passed
	}
	return failed
}

// keyDone ends the name of a member.
func (o *object) keyDone() progress {
	var key string
	o.out.looked += len(o.key)
	if json.Unmarshal(o.key, &key) != nil {
		return failed
	}
	o.member = ""
	if i := slices.Index(memberNames, key); i >= 0 {
		o.member = memberNames[i]
	} else if o.known != nil {
		return failed
	}
	o.state = colon
	return unfinished
}

// isArguments reports whether the current member has the arguments.
func (o *object) isArguments() bool {
	return !o.given && (o.member == "arguments" || o.member == "parameters")
}

// readValue reads a byte of the value of a member.
func (o *object) readValue(b byte) progress {
	if !o.value.started && !isSpace(b) {
		switch {
		case b == '{' && o.member == "function" && o.depth == 0:
			o.depth, o.state = 1, keyBegin
			return unfinished
		case b == '{' && o.isArguments() && o.name != "":
			o.show()
			o.stream, o.given = true, true
		}
	}
	done := o.value.next(b)
	if o.value.started && (!done || o.value.counts) {
		if o.stream {
			o.out.text(Arguments, []byte{b})
		} else if o.keeps() {
			o.raw = append(o.raw, b)
		}
	}
	if !done {
		return unfinished
	}
	o.state = memberEnd
	if o.stream {
		o.stream = false
	} else if o.valueDone() == failed {
		return failed
	}
	if o.value.counts {
		return unfinished
	}
	return o.next(b)
}

// keeps reports whether the value of the current member is needed.
func (o *object) keeps() bool {
	return o.isArguments() || o.name == "" && (o.member == "name" || o.member == "function")
}

// valueDone ends the value of a member.
func (o *object) valueDone() progress {
	o.out.looked += len(o.raw)
	switch {
	case !o.keeps():
		return unfinished
	case o.isArguments():
		o.args, o.given = append([]byte(nil), argumentsText(o.raw)...), true
	default:
		if json.Unmarshal(o.raw, &o.name) != nil || o.name == "" || o.known != nil && !o.known(o.name) {
			return failed
		}
	}
	if o.name != "" && o.given {
		o.show()
		o.out.text(Arguments, o.args)
	}
	return unfinished
}

// argumentsText returns the text of a call's arguments. If raw is a string, they are its contents. If raw is null or an
// empty string, they are an empty object. Any other raw is returned unchanged.
func argumentsText(raw []byte) string {
	text := string(raw)
	if json.Unmarshal(raw, &text) == nil {
		text = strings.TrimSpace(text)
	}
	if text == "null" || text == "" {
		return "{}"
	}
	return text
}

// show reports the beginning of the call.
func (o *object) show() {
	if !o.out.open {
		o.out.call("", o.name)
	}
}

func (o *object) close() {}

// end reads a closing brace.
func (o *object) end() progress {
	if o.depth > 0 {
		o.depth, o.state = 0, memberEnd
		return unfinished
	}
	if o.name == "" {
		return failed
	}
	if !o.given {
		o.show()
		o.out.text(Arguments, []byte("{}"))
	}
	return ended
}
