package lexeme

import "llmmemory/internal/serving/structured/automaton"

// None is the result of Next for a forbidden byte. It is also the tag of a state in which the lexeme cannot end.
const None = automaton.None

// State is a state of a lexeme. Unlike the number of a state, it does not depend on the order in which the
// states of the lexeme are reached. Lexemes with the same key have the same States.
type State struct {
	phase phase
	space uint8  // what is known of the white space so far
	pos   int32  // state of the automaton, node of the names, or tag
	code  uint32 // what is known of an incomplete character
}

type phase uint8

const (
	leading phase = iota // white space, then the first byte
	inText
	inUnlisted // inside a name that is not listed
	named      // after a name, before its colon
	ended
)

// machine defines the transitions of a lexeme. The lexeme may end in state s if tag(s) is not None. step returns the
// state after byte b in state s, and true if the lexeme may end in this state or in a later one.
type machine interface {
	step(s State, b byte) (State, bool)
	tag(s State) int32
}

// Lexeme is an automaton over bytes. It is not safe for concurrent use.
type Lexeme struct {
	machine machine
	key     string
	shape   func(s State) (string, State) // the Identity of a state if it is not that of key; or nil
	alike   func(pos int32) int32         // of a text within limits (see LimitedText); or nil
	others  *members                      // the excluded names, if Others made the lexeme
	free    int32                         // the tag of a free text's end, or None
	ids     map[State]int32
	states  []State
	rows    []*Row // of the states; nil if the row is not kept
	kept    int    // rows that are not nil
}

// maxRows is the number of rows that a lexeme keeps. When it makes another one, it drops all of them. A row takes about
// 1,100 bytes, and a string with a limited length has a state for each of its characters.
const maxRows = 8192

// Row holds what is known of a state.
type Row struct {
	next  [256]int32
	Tag   int32     // as of Lexeme.Tag
	open  int8      // whether a byte can follow: 0 unknown, 1 yes, -1 no
	loops bool      // whether Loops is known
	Loop  [4]uint64 // the bytes that do not change the state; set by Loops
}

const unknown = -2

func newLexeme(key string, m machine) *Lexeme {
	l := &Lexeme{machine: m, key: key, free: None, ids: map[State]int32{}}
	l.intern(State{})
	return l
}

// Compact changes a new lexeme so that no white space may come before it, and exactly one space comes after
// the colon of a name.
func (l *Lexeme) Compact() *Lexeme {
	l.machine = compact{l.machine}
	if l.key != "" {
		l.key = compactKey + l.key
	}
	if shape := l.shape; shape != nil {
		l.shape = func(s State) (string, State) {
			key, s := shape(s)
			return compactKey + key, s
		}
	}
	return l
}

// IsCompact reports whether the lexeme is compact.
func (l *Lexeme) IsCompact() bool {
	_, ok := l.machine.(compact)
	return ok
}

const compactKey = "compact "

type compact struct{ machine }

func (c compact) step(s State, b byte) (State, bool) {
	switch {
	case s.phase == leading && isSpace(b):
		return s, false
	case s.phase == named && s.space == 0:
		s.space++
		return s, b == ':'
	case s.phase == named:
		return State{phase: ended, pos: s.pos}, b == ' '
	}
	return c.machine.step(s, b)
}

func (l *Lexeme) intern(s State) int32 {
	if id, ok := l.ids[s]; ok {
		return id
	}
	id := int32(len(l.states))
	l.ids[s] = id
	l.states = append(l.states, s)
	l.rows = append(l.rows, nil)
	return id
}

// Row returns the row of a state.
func (l *Lexeme) Row(state int32) *Row {
	if r := l.rows[state]; r != nil {
		return r
	}
	r := &Row{Tag: l.machine.tag(l.states[state])}
	for b := range r.next {
		r.next[b] = unknown
	}
	if l.kept++; l.kept > maxRows {
		clear(l.rows)
		l.kept = 1
	}
	l.rows[state] = r
	return r
}

// Next returns the state after a byte, or None. The start is state 0.
func (l *Lexeme) Next(state int32, b byte) int32 {
	r := l.rows[state]
	if r == nil {
		r = l.Row(state)
	}
	if next := r.next[b]; next != unknown {
		return next
	}
	return l.find(r, state, b)
}

// Known returns the state after byte b, or None if the byte is forbidden. If Next has not computed this result yet,
// Known returns a number less than None.
func (r *Row) Known(b byte) int32 { return r.next[b] }

func (l *Lexeme) find(r *Row, state int32, b byte) int32 {
	next := int32(None)
	if s, ok := l.machine.step(l.states[state], b); ok {
		next = l.intern(s)
	}
	r.next[b] = next
	return next
}

// Tag returns the tag with which the lexeme may end in a state, or None. Lexemes of several texts, such as
// names, have a tag for each text.
func (l *Lexeme) Tag(state int32) int32 { return l.Row(state).Tag }

// Loops returns the row of a state with its Loop.
func (l *Lexeme) Loops(state int32) *Row {
	r := l.Row(state)
	if !r.loops {
		r.loops = true
		for b := range 256 {
			if l.Next(state, byte(b)) == state {
				r.Loop[b/64] |= 1 << (b % 64)
			}
		}
	}
	return r
}

// Open reports whether a byte can follow in a state.
func (l *Lexeme) Open(state int32) bool {
	r := l.Row(state)
	if r.open == 0 {
		r.open = -1
		for b := range 256 {
			if l.Next(state, byte(b)) != None {
				r.open = 1
				break
			}
		}
	}
	return r.open == 1
}

// An Identity identifies a state among the states of all lexemes. If two states have equal Identities, every token that
// can follow in one of them can follow in the other. If Key is empty, the state has no Identity.
type Identity struct {
	Key   string
	State State
}

// Identity returns the identity of a state.
func (l *Lexeme) Identity(state int32) Identity {
	if l.shape != nil {
		key, s := l.shape(l.states[state])
		return Identity{key, s}
	}
	return Identity{l.key, l.states[state]}
}

// Alike returns a state in which the same tokens can follow as in the given state. LimitedText makes lexemes with many
// such states; Alike returns the same state for most of them. For all other lexemes, it returns the given state.
func (l *Lexeme) Alike(state int32) int32 {
	s := l.states[state]
	if l.alike == nil || s.phase != inText {
		return state
	}
	s.pos = l.alike(s.pos)
	return l.intern(s)
}
