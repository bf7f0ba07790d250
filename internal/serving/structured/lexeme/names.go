package lexeme

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/serving/structured/automaton"
)

// Names returns the lexeme that accepts the given names of members, each with the tag at the same index.
func Names(names []string, tags []int32) *Lexeme {
	m := newMembers(None, true)
	for i, name := range names {
		m.add(name, tags[i])
	}
	return newLexeme("", m)
}

// Others returns the lexeme that accepts all names of members except the given ones.
func Others(names []string) *Lexeme {
	m := newMembers(0, true)
	for _, name := range names {
		m.add(name, None)
	}
	l := newLexeme("", m)
	l.others = m
	return l
}

// AnyName returns the lexeme of all names of members.
func AnyName() *Lexeme { return Name("name", automaton.All()) }

// AnyNameState returns the state of the lexeme AnyName that corresponds to the given state of l: the same bytes lead to
// both. For a compact l, it returns the state of a compact AnyName. If l was not made by Others, AnyNameState returns
// false.
func (l *Lexeme) AnyNameState(state int32) (State, bool) {
	if l.others == nil {
		return State{}, false
	}
	return l.others.anyNameState(l.states[state]), true
}

// CanExclude reports whether an excluded name can still occur after a state of a lexeme that Others returned.
func (l *Lexeme) CanExclude(state int32) bool {
	phase := l.states[state].phase
	return phase == inText || phase == leading
}

// anyNameState returns the state of AnyName that corresponds to s: the same bytes lead to both.
func (m *members) anyNameState(s State) State {
	switch s.phase {
	case inText:
		return m.nodes[s.pos].extra
	case inUnlisted:
		s.phase = inText
	}
	s.pos = 0
	return s
}

// Find returns the number of a state.
func (l *Lexeme) Find(s State) int32 { return l.intern(s) }

// Strings returns the lexeme that accepts the given JSON strings, written in the form Quoted.
func Strings(list []string) *Lexeme {
	m := newMembers(None, false)
	for _, text := range list {
		m.add(text, 0)
	}
	return newLexeme("", m)
}

func newMembers(additional int32, colon bool) *members {
	m := &members{additional: additional, unlistedText: text{dfa: automaton.All(), form: Quoted, colon: true}, colon: colon}
	m.nodes = []node{{tag: None, extra: State{phase: inText}}}
	return m
}

// members is the machine of a list of names, or of a list of strings (see Strings). A trie has the bytes of the listed
// names. If names outside the list are possible, unlistedText reads the rest of such a name: the first byte that is not
// in the trie, and the bytes after it.
type members struct {
	nodes        []node
	additional   int32 // the tag of names that are not listed, or None if they are not possible
	unlistedText text
	colon        bool // whether a colon follows the name
}

type node struct {
	b              byte
	child, sibling int32
	listed         bool  // a name of the list ends here
	tag            int32 // of this name, or None if it is not possible
	extra          State // of unlistedText, after the same bytes
}

func (m *members) add(name string, tag int32) {
	parent := int32(0)
	for _, b := range Encode(nil, name) {
		child := m.child(parent, b)
		if child == 0 {
			child = int32(len(m.nodes))
			extra, _ := m.unlistedText.step(m.nodes[parent].extra, b)
			m.nodes = append(m.nodes, node{b: b, sibling: m.nodes[parent].child, tag: None, extra: extra})
			m.nodes[parent].child = child
		}
		parent = child
	}
	m.nodes[parent].listed, m.nodes[parent].tag = true, tag
}

func (m *members) child(parent int32, b byte) int32 {
	for child := m.nodes[parent].child; child != 0; child = m.nodes[child].sibling {
		if m.nodes[child].b == b {
			return child
		}
	}
	return 0
}

func (m *members) step(s State, b byte) (State, bool) {
	switch s.phase {
	case leading:
		if isSpace(b) || inLineBreak(s.space) {
			var ok bool
			s.space, ok = readSpace(s.space, b)
			return s, ok
		}
		return State{phase: inText}, b == '"'
	case named:
		return afterName(s, b)
	case inUnlisted:
		s.phase = inText
		return m.unlisted(s, b)
	case ended:
		return s, false
	}
	n := m.nodes[s.pos]
	if b == '"' && n.listed && n.extra.code == 0 {
		if !m.colon {
			return State{phase: ended, pos: n.tag}, true
		}
		return State{phase: named, pos: n.tag}, n.tag != None
	}
	if child := m.child(s.pos, b); child != 0 {
		return State{phase: inText, pos: child}, true
	}
	if m.additional == None {
		return s, false
	}
	return m.unlisted(n.extra, b)
}

// unlisted reads a byte of a name that is not listed.
func (m *members) unlisted(s State, b byte) (State, bool) {
	s, ok := m.unlistedText.step(s, b)
	switch {
	case !ok:
		return s, false
	case s.phase == named:
		return State{phase: named, pos: m.additional}, true
	}
	s.phase = inUnlisted
	return s, true
}

func (m *members) tag(s State) int32 {
	if s.phase == ended {
		return s.pos
	}
	return None
}

// Encode appends a text as Quoted has it, without the quotes.
func Encode(dst []byte, text string) []byte {
	for _, r := range text {
		if i := strings.IndexRune("\"\\\b\f\n\r\t", r); i >= 0 {
			dst = append(dst, '\\', `"\bfnrt`[i])
		} else if r < 0x20 {
			dst = fmt.Appendf(dst, `\u%04x`, r)
		} else {
			dst = utf8.AppendRune(dst, r)
		}
	}
	return dst
}
