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
	l.except = m
	return l
}

// AnyName returns the lexeme of all names of members.
func AnyName() *Lexeme { return Name("name", automaton.All()) }

// Except translates a state of l to a state of the lexeme AnyName. The same bytes lead l and AnyName to these states.
// If l is compact, it is the state of a compact AnyName. If l was not made by Others, Except returns false.
func (l *Lexeme) Except(state int32) (State, bool) {
	if l.except == nil {
		return State{}, false
	}
	return l.except.any(l.states[state]), true
}

// CanExclude reports whether an excluded name can still occur after a state of a lexeme that Others returned.
func (l *Lexeme) CanExclude(state int32) bool {
	phase := l.states[state].phase
	return phase == inside || phase == before
}

// any returns the state that AnyName has after the same bytes.
func (m *members) any(s State) State {
	switch s.phase {
	case inside:
		return m.nodes[s.at].extra
	case other:
		s.phase = inside
	}
	s.at = 0
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
	m := &members{additional: additional, rest: text{dfa: automaton.All(), form: Quoted, colon: true}, colon: colon}
	m.nodes = []node{{tag: None, extra: State{phase: inside}}}
	return m
}

// members is the machine of a list of names. A trie has the bytes of the listed names. If names outside the
// list are possible, rest reads the bytes of such a name from the first byte that is not in the trie.
type members struct {
	nodes      []node
	additional int32 // the tag of names that are not listed, or None if they are not possible
	rest       text
	colon      bool // whether a colon follows the name
}

type node struct {
	b              byte
	child, sibling int32
	listed         bool  // a name of the list ends here
	tag            int32 // of this name, or None if it is not possible
	extra          State // of rest, after the same bytes
}

func (m *members) add(name string, tag int32) {
	at := int32(0)
	for _, b := range Encode(nil, name) {
		to := m.child(at, b)
		if to == 0 {
			to = int32(len(m.nodes))
			extra, _ := m.rest.step(m.nodes[at].extra, b)
			m.nodes = append(m.nodes, node{b: b, sibling: m.nodes[at].child, tag: None, extra: extra})
			m.nodes[at].child = to
		}
		at = to
	}
	m.nodes[at].listed, m.nodes[at].tag = true, tag
}

func (m *members) child(at int32, b byte) int32 {
	for to := m.nodes[at].child; to != 0; to = m.nodes[to].sibling {
		if m.nodes[to].b == b {
			return to
		}
	}
	return 0
}

func (m *members) step(s State, b byte) (State, bool) {
	switch s.phase {
	case before:
		if isSpace(b) {
			var ok bool
			s.space, ok = readSpace(s.space, b)
			return s, ok
		}
		return State{phase: inside}, b == '"'
	case named:
		return afterName(s, b)
	case other:
		s.phase = inside
		return m.unlisted(s, b)
	case ended:
		return s, false
	}
	n := m.nodes[s.at]
	if b == '"' && n.listed && n.extra.code == 0 {
		if !m.colon {
			return State{phase: ended, at: n.tag}, true
		}
		return State{phase: named, at: n.tag}, n.tag != None
	}
	if to := m.child(s.at, b); to != 0 {
		return State{phase: inside, at: to}, true
	}
	if m.additional == None {
		return s, false
	}
	return m.unlisted(n.extra, b)
}

// unlisted reads a byte of a name that is not listed.
func (m *members) unlisted(s State, b byte) (State, bool) {
	s, ok := m.rest.step(s, b)
	switch {
	case !ok:
		return s, false
	case s.phase == named:
		return State{phase: named, at: m.additional}, true
	}
	s.phase = other
	return s, true
}

func (m *members) tag(s State) int32 {
	if s.phase == ended {
		return s.at
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
