package toolparser

import (
	"bytes"
	"strings"
)

// shaped reads what follows the marker of a call: an object, a list of objects, or a name with an object.
type shaped struct {
	parser *ToolParser
	out    *output
	known  func(string) bool
	kind   func(tool, parameter string) ParameterKind
	bare   bool // nothing but the name shows that this is a call

	shape  shape
	object *object
	named  *namedCall
	tagged *taggedCall
	shown  bool
}

type shape uint8

const (
	unknownShape shape = iota
	oneObject
	listBegin // after the bracket
	listItem
	listNext // after an object in a list
	nameShape
	taggedShape
)

func (s *shaped) begun() bool {
	return s.shown || s.object != nil && s.object.shown || s.named != nil && s.named.shown || s.tagged != nil && s.tagged.shown
}

func (s *shaped) next(b byte) progress {
	switch s.shape {
	case unknownShape:
		return s.choose(b)
	case listBegin:
		switch {
		case isSpace(b):
			return more
		case b == '{':
			s.shape = listItem
			return s.begin(b)
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
		return more
	case nameShape:
		return s.named.next(b)
	case taggedShape:
		return s.tagged.next(b)
	}
	switch p := s.object.next(b); {
	case p == ended && s.shape == listItem:
		s.shown, s.shape = true, listNext
		return more
	default:
		return p
	}
}

func (s *shaped) choose(b byte) progress {
	switch {
	case isSpace(b):
		return more
	case s.parser.Tagged != nil:
		s.shape, s.tagged = taggedShape, &taggedCall{tags: s.parser.Tagged, kind: s.kind, out: s.out}
		return s.tagged.next(b)
	case b == '{':
		s.shape = oneObject
		return s.begin(b)
	case b == '[':
		s.shape = listBegin
		return more
	case s.parser.Named != nil:
		s.shape, s.named = nameShape, &namedCall{marks: s.parser.Named, out: s.out}
		return s.named.next(b)
	}
	return failed
}

func (s *shaped) begin(b byte) progress {
	s.object = &object{out: s.out}
	if s.bare {
		s.object.known = s.known
	}
	return s.object.next(b)
}

func (s *shaped) close(cut bool) {
	switch {
	case s.tagged != nil:
		s.tagged.close(cut)
	case s.named != nil && !cut:
		s.named.close()
	}
}

// maxName is the largest number of bytes before the arguments of a namedCall.
const maxName = 512

// namedCall reads a name, perhaps an id, and arguments.
type namedCall struct {
	marks *Named
	out   *output
	head  []byte
	shown bool
	value value
}

func (n *namedCall) next(b byte) progress {
	if n.shown {
		done := n.value.next(b)
		if !done || n.value.counts {
			n.out.text(Arguments, []byte{b})
		}
		switch {
		case !done:
			return more
		case n.value.counts:
			n.out.callEnd()
			return ended
		}
		n.out.callEnd()
		return passed
	}
	n.head = append(n.head, b)
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
	return more
}

// begin shows the call.
func (n *namedCall) begin(head []byte) progress {
	name, id := strings.TrimSpace(string(head)), ""
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
	n.shown = true
	return more
}

func (n *namedCall) close() {
	if n.shown && !n.value.started {
		n.out.text(Arguments, []byte("{}"))
		n.out.callEnd()
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
