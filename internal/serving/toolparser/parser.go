package toolparser

import (
	"encoding/json"
	"slices"
)

// A Kind is what an Event reports.
type Kind uint8

// Kinds of events.
const (
	Reasoning Kind = iota // text of the reasoning
	Content               // text of the answer
	Call                  // the beginning of a call, with its ID and Name
	Arguments             // a part of the arguments of the last call
	CallEnd               // the end of the last call
)

// An Event is a part of an answer.
type Event struct {
	Kind     Kind
	Text     string // of Reasoning, Content and Arguments
	ID, Name string // of Call
}

// A Format has the parsers for a model's tool calls and reasoning. If Tools or Reasoning is nil, the text that it would
// find is content.
type Format struct {
	Tools     *ToolParser
	Reasoning *ReasoningParser
}

// Options describe the request whose answer is parsed.
type Options struct {
	Known  func(name string) bool // reports whether a tool has this name; nil means that calls are content
	Prompt string                 // the end of the prompt, which may begin the reasoning

	// ParameterKind returns the kind of a tool's parameter. Only parsers that are Tagged call it. If it is nil, the
	// kind is JSONParameter.
	ParameterKind func(tool, parameter string) ParameterKind
}

// A Parser parses one answer. Its work is proportional to the length of the answer, whatever the answer is and however
// it is cut into pieces: a parser looks at held text only where a new byte can change what it means. It is not safe for
// concurrent use.
type Parser struct {
	first stage
	out   output
}

// A stage is a step of the parsing of an answer: it finds the reasoning, or the calls. It reads text byte by
// byte, so its result does not depend on how the text is divided into pieces.
type stage interface {
	next(b byte)
	close(cut bool) // the text has ended, or with cut was ended by max_tokens or a stop string
}

// Parser returns a parser of an answer.
func (f *Format) Parser(o Options) *Parser {
	p := &Parser{}
	p.out.newID = callID
	tools := f.Tools
	if tools != nil && tools.NineIDs {
		p.out.newID = nineID
	}
	if o.Known == nil {
		tools = nil
	}
	if f.Harmony() {
		p.first = &harmony{out: &p.out, calls: tools != nil}
		return p
	}
	content := stage(&plain{&p.out})
	if tools != nil {
		content = &calls{parser: tools, known: o.Known, kind: o.ParameterKind, out: &p.out, outside: Content, line: true, tail: tail{set: space},
			markers: slices.Concat(tools.Begin, tools.End)}
	}
	p.first = content
	if f.Reasoning != nil {
		p.first = newThinking(f.Reasoning, o.Prompt, content, &p.out)
	}
	return p
}

// Feed parses the next piece of the answer. The events are valid until the next call.
func (p *Parser) Feed(text string) []Event {
	p.out.begin()
	for i := range len(text) {
		p.first.next(text[i])
	}
	return p.out.end()
}

// Close parses the end of the answer.
func (p *Parser) Close() []Event { return p.close(false) }

// Cut parses the end of an answer that max_tokens or a stop string ended. It drops text at the end that may begin a
// marker or a call.
func (p *Parser) Cut() []Event { return p.close(true) }

// CallIsCut reports, after Cut, whether the answer ended inside a call: Cut dropped the beginning of a call, or the
// arguments of the last call are not JSON.
func (p *Parser) CallIsCut() bool {
	return p.out.dropped || p.out.calls > 0 && !json.Valid(p.out.arguments)
}

func (p *Parser) close(cut bool) []Event {
	p.out.begin()
	p.first.close(cut)
	p.out.callEnd()
	return p.out.end()
}

// plain passes text on as content.
type plain struct{ out *output }

func (p *plain) next(b byte) { p.out.text(Content, []byte{b}) }
func (p *plain) close(bool)  {}

// An output collects events. It joins texts of one kind.
type output struct {
	newID   func() string
	events  []Event
	bytes   []byte
	kind    Kind
	calls   int  // so far
	open    bool // the last call has not ended
	dropped bool // the beginning of a call was dropped
	looked  int  // bytes of held text that the parsers have looked at

	arguments []byte // of the last call
}

func (o *output) begin() { o.events = o.events[:0] }

func (o *output) end() []Event {
	o.flush()
	return o.events
}

func (o *output) flush() {
	if len(o.bytes) > 0 {
		o.events = append(o.events, Event{Kind: o.kind, Text: string(o.bytes)})
		o.bytes = o.bytes[:0]
	}
}

func (o *output) text(kind Kind, text []byte) {
	if kind != o.kind {
		o.flush()
	}
	o.kind = kind
	o.bytes = append(o.bytes, text...)
	if kind == Arguments {
		o.arguments = append(o.arguments, text...)
	}
}

// call reports the beginning of a call. If id is "", the call gets a new id.
func (o *output) call(id, name string) {
	o.flush()
	if id == "" {
		id = o.newID()
	}
	o.calls++
	o.open, o.arguments = true, o.arguments[:0]
	o.events = append(o.events, Event{Kind: Call, ID: id, Name: name})
}

// callEnd ends the last call, if it is open.
func (o *output) callEnd() {
	if o.open {
		o.flush()
		o.events = append(o.events, Event{Kind: CallEnd})
	}
	o.open = false
}
