package toolparser

import (
	"bytes"
	"strings"
)

// shaped reads the text after the marker of a call. The first bytes show its shape: an object, a list of
// objects, or a name with arguments.
type shaped struct {
	calls    *calls
	bare     bool // nothing but the name shows that this is a call
	reported int  // the calls that were reported before

	shape shape
	call  callReader // of the current call, or nil
}

// A callReader reads one call. It reports the call as soon as it has read the call's name.
type callReader interface {
	next(b byte) progress
	close() // the answer ended, but neither max_tokens nor a stop string ended it
}

type shape uint8

const (
	unknownShape shape = iota
	oneCall
	listBegin // after the bracket
	listItem
	listNext // after an object in a list
)

// begun reports whether a Call event was reported.
func (s *shaped) begun() bool { return s.calls.out.calls > s.reported }

func (s *shaped) next(b byte) progress {
	switch s.shape {
	case unknownShape:
		return s.choose(b)
	case listBegin:
		switch {
		case isSpace(b):
			return unfinished
		case b == '{':
			return s.begin(listItem, s.object(), b)
		case b == ']' && s.begun():
			return ended
		case s.calls.parser.Pythonic:
			return s.begin(listItem, s.pythonic(), b)
		}
		return failed
	case listNext:
		switch {
		case isSpace(b):
		case b == ',':
			s.shape = listBegin
		case b == ']':
			return ended
		default:
			return passed
		}
		return unfinished
	}
	p := s.call.next(b)
	if s.shape == listItem && (p == ended || p == endedBefore) {
		s.calls.out.callEnd()
		s.shape = listNext
		if p == ended {
			return unfinished
		}
		return s.next(b)
	}
	if p == endedBefore {
		return passed
	}
	return p
}

func (s *shaped) choose(b byte) progress {
	switch {
	case isSpace(b):
		return unfinished
	case s.calls.parser.Tagged != nil:
		return s.begin(oneCall, newTaggedCall(s.calls), b)
	case b == '{':
		return s.begin(oneCall, s.object(), b)
	case b == '[':
		s.shape = listBegin
		return unfinished
	case s.calls.parser.Pythonic:
		return s.begin(oneCall, s.pythonic(), b)
	case s.calls.parser.Named != nil:
		return s.begin(oneCall, &namedCall{marks: s.calls.parser.Named, out: s.calls.out}, b)
	}
	return failed
}

func (s *shaped) begin(shape shape, call callReader, b byte) progress {
	s.shape, s.call = shape, call
	return call.next(b)
}

func (s *shaped) object() *object {
	o := &object{out: s.calls.out}
	if s.bare {
		o.known = s.calls.known
	}
	return o
}

func (s *shaped) pythonic() *pythonicCall {
	c := &pythonicCall{out: s.calls.out}
	if s.bare && !s.begun() {
		c.known = s.calls.known
	}
	return c
}

// maxName is a limit in bytes. In a namedCall, it applies to the text before the arguments. In a taggedCall, it applies
// to the name of the function and to the name of each parameter, as in a pythonicCall.
const maxName = 512

// namedCall reads a name, perhaps an id, and arguments.
type namedCall struct {
	marks *Named
	out   *output
	head  []byte
	value value
}

func (n *namedCall) next(b byte) progress {
	if n.out.open {
		done := n.value.next(b)
		if done && !n.value.counts {
			return passed
		}
		n.out.text(Arguments, []byte{b})
		if done {
			return ended
		}
		return unfinished
	}
	n.head = append(n.head, b)
	n.out.looked += len(n.marks.Args)
	args := n.marks.Args
	switch {
	case args != "" && bytes.HasSuffix(n.head, []byte(args)):
		return n.begin(n.head[:len(n.head)-len(args)])
	case b == '{':
		if n.begin(n.head[:len(n.head)-1]) == failed {
			return failed
		}
		return n.next(b)
	case len(n.head) > maxName:
		return failed
	}
	return unfinished
}

// begin reports the call whose name, and perhaps id, are in head.
func (n *namedCall) begin(head []byte) progress {
	name, id := strings.TrimSpace(string(head)), ""
	if n.marks.Numbered {
		id = name
		name = strings.TrimPrefix(name, n.marks.Before)
		if i := strings.LastIndexByte(name, ':'); i >= 0 {
			name = name[:i]
		}
	}
	if n.marks.ID != "" {
		name, id, _ = strings.Cut(name, n.marks.ID)
		if !isNineID(id) {
			id = ""
		}
	}
	if name = strings.TrimSpace(name); !IsName(name) {
		return failed
	}
	n.out.call(id, name)
	return unfinished
}

func (n *namedCall) close() {
	if n.out.open && !n.value.started {
		n.out.text(Arguments, []byte("{}"))
	}
}

// IsName reports whether name can be the name of a function.
func IsName(name string) bool {
	for _, c := range []byte(name) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("_-.:/", c) >= 0) {
			return false
		}
	}
	return name != ""
}
