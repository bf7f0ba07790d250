package toolparser

import "strings"

// A ReasoningParser describes how a family of models writes its reasoning: at the beginning of an answer, between two
// markers.
type ReasoningParser struct {
	Name       string
	Begin, End string
	Implied    bool // an answer begins with the reasoning even without Begin, unless the prompt has the reasoning

	template [][]string
	harmony  bool
}

// Opens reports whether a model that continues the prompt begins inside its reasoning.
func (r *ReasoningParser) Opens(prompt string) bool {
	prompt = strings.TrimRight(prompt, " \t\r\n")
	return strings.HasSuffix(prompt, r.Begin) || r.Implied && !strings.HasSuffix(prompt, r.End)
}

// Ends reports whether the prompt already ends with a complete reasoning. The answer then has none.
func (r *ReasoningParser) Ends(prompt string) bool {
	return strings.HasSuffix(strings.TrimRight(prompt, " \t\r\n"), r.End)
}

// thinking reports the reasoning at the beginning of an answer. It passes the text after the reasoning to
// content, the stage that reports content and calls. Line breaks around the reasoning are dropped. A call that follows
// a marker ends the reasoning, too: models forget the end marker. So calls also reads the reasoning.
type thinking struct {
	parser  *ReasoningParser
	content stage
	calls   *calls // content, if calls are found by their markers; else nil
	out     *output
	state   thinkingState
	tail    tail // in the states beforeReasoning and opening, only space is blank; in insideReasoning, line breaks are

	unclosed bool // a call has ended the reasoning, and the end marker may still come
}

type thinkingState uint8

const (
	beforeReasoning thinkingState = iota // nothing was read but space and a part of Begin
	opening                              // inside the reasoning, of which nothing was read but space and a part of a marker
	insideReasoning
	afterReasoning // the reasoning has ended, and only line breaks followed
	done
)

func newThinking(r *ReasoningParser, prompt string, content stage, out *output) *thinking {
	t := &thinking{parser: r, content: content, out: out, tail: tail{set: space}}
	if r.Opens(prompt) {
		t.state = opening
	}
	if c, ok := content.(*calls); ok && c.parser.Writing.Marker != "" {
		t.calls = c
	}
	return t
}

func (t *thinking) next(b byte) {
	switch t.state {
	case done:
		t.pass(b)
	case afterReasoning:
		if b != '\n' && b != '\r' {
			t.state = done
			t.content.next(b)
		}
	case beforeReasoning:
		t.tail.held = append(t.tail.held, b)
		text := t.marker()
		switch {
		case string(text) == t.parser.Begin:
			t.state = opening
			t.tail.clear()
		case !t.out.begins([]string{t.parser.Begin}, text):
			t.state = done
			t.release()
		}
	default:
		t.read(b)
	}
}

// marker returns the held text after the space at its beginning.
func (t *thinking) marker() []byte {
	t.tail.blank += t.out.spaceAfter(t.tail.held[t.tail.blank:], space)
	return t.tail.held[t.tail.blank:]
}

// read reads a byte of the reasoning.
func (t *thinking) read(b byte) {
	t.tail.held = append(t.tail.held, b)
	if t.state == opening && !t.opened() {
		return
	}
	held := t.tail.held
	if t.out.completes(held, []string{t.parser.End}) != "" {
		text := held[:len(held)-len(t.parser.End)]
		t.report(text[:t.out.spaceBefore(text, lineBreaks)])
		if t.state == insideReasoning && t.calls != nil {
			t.calls.endReasoning()
		}
		t.state = afterReasoning
		t.tail.clear()
		return
	}
	t.tail.release(t.out, t.out.partialMarker(held, []string{t.parser.End}), t.report)
	if t.state == done {
		t.release()
	}
}

// opened reports whether the text of the reasoning has begun, or End was read without a text before it. If so, opened
// drops the line breaks before it.
func (t *thinking) opened() bool {
	text := t.marker()
	switch {
	case len(text) == 0:
		return false
	case string(text) == t.parser.Begin: // which the prompt has as well
		t.tail.clear()
		return false
	case string(text) != t.parser.End && t.out.begins([]string{t.parser.Begin, t.parser.End}, text):
		return false
	}
	n := t.out.spaceAfter(t.tail.held, lineBreaks)
	t.tail = tail{set: lineBreaks, held: append(t.tail.held[:0], t.tail.held[n:]...)}
	t.state = insideReasoning
	return true
}

// report reports a part of the reasoning. If a call begins in it, the reasoning has ended, and the state is done.
func (t *thinking) report(text []byte) {
	if t.calls == nil {
		t.out.text(Reasoning, text)
		return
	}
	if t.state != done {
		t.calls.outside = Reasoning
	}
	for _, b := range text {
		t.calls.next(b)
		if t.state != done && t.out.calls > 0 {
			t.state, t.unclosed, t.calls.outside = done, true, Content
		}
	}
}

// pass passes a byte on to content. If a call has ended the reasoning, the first end marker outside calls is dropped.
func (t *thinking) pass(b byte) {
	if !t.unclosed || t.calls.reading != nil {
		t.content.next(b)
		return
	}
	t.tail.held = append(t.tail.held, b)
	switch text := t.tail.held; {
	case string(text) == t.parser.End:
		t.state, t.unclosed = afterReasoning, false
		t.tail.clear()
	case !t.out.begins([]string{t.parser.End}, text):
		t.release()
	}
}

// release passes the held bytes to content.
func (t *thinking) release() {
	for _, b := range t.tail.held {
		t.content.next(b)
	}
	t.tail.clear()
}

func (t *thinking) close(cut bool) {
	switch {
	case cut && (t.state == opening || t.out.spaceAfter(t.tail.held, space) < len(t.tail.held)): // it may be a marker
	case t.state == beforeReasoning, t.state == done:
		t.release()
	case t.state == opening, t.state == insideReasoning:
		t.report(t.tail.held)
	}
	t.content.close(cut)
}
