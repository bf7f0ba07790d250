package toolparser

import (
	"bytes"
	"strings"
)

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
// content, the stage that reports content and calls. Line breaks around the reasoning are dropped.
type thinking struct {
	parser  *ReasoningParser
	content stage
	out     *output
	state   thinkingState
	held    []byte
}

type thinkingState uint8

const (
	beforeReasoning thinkingState = iota // nothing but space was read
	opening                              // inside the reasoning, of which nothing was read
	insideReasoning
	afterReasoning // the reasoning has ended, and only line breaks followed
	done
)

func newThinking(r *ReasoningParser, prompt string, content stage, out *output) *thinking {
	t := &thinking{parser: r, content: content, out: out}
	if r.Opens(prompt) {
		t.state = opening
	}
	return t
}

func (t *thinking) next(b byte) {
	switch t.state {
	case done:
		t.content.next(b)
	case afterReasoning:
		if b != '\n' && b != '\r' {
			t.state = done
			t.content.next(b)
		}
	case beforeReasoning:
		t.held = append(t.held, b)
		text := bytes.TrimLeft(t.held, " \t\r\n")
		switch {
		case string(text) == t.parser.Begin:
			t.state, t.held = opening, t.held[:0]
		case !strings.HasPrefix(t.parser.Begin, string(text)):
			t.state = done
			t.release()
		}
	default:
		t.read(b)
	}
}

// read reads a byte of the reasoning.
func (t *thinking) read(b byte) {
	t.held = append(t.held, b)
	if t.state == opening {
		text := bytes.TrimLeft(t.held, " \t\r\n")
		switch {
		case len(text) == 0:
			return
		case string(text) == t.parser.Begin: // which the prompt has as well
			t.held = t.held[:0]
			return
		case strings.HasPrefix(t.parser.Begin, string(text)) || strings.HasPrefix(t.parser.End, string(text)) && string(text) != t.parser.End:
			return
		}
		t.held = append(t.held[:0], bytes.TrimLeft(t.held, "\r\n")...)
		t.state = insideReasoning
	}
	if completes(t.held, []string{t.parser.End}) != "" {
		t.out.text(Reasoning, bytes.TrimRight(t.held[:len(t.held)-len(t.parser.End)], "\r\n"))
		t.state, t.held = afterReasoning, t.held[:0]
		return
	}
	keep := partialMarker(t.held, []string{t.parser.End})
	keep = len(t.held) - len(bytes.TrimRight(t.held[:len(t.held)-keep], "\r\n"))
	t.out.text(Reasoning, t.held[:len(t.held)-keep])
	t.held = append(t.held[:0], t.held[len(t.held)-keep:]...)
}

// release passes the held bytes to content.
func (t *thinking) release() {
	for _, b := range t.held {
		t.content.next(b)
	}
	t.held = nil
}

func (t *thinking) close(cut bool) {
	switch {
	case cut && (t.state == opening || len(bytes.TrimLeft(t.held, " \t\r\n")) > 0): // it may be a marker
	case t.state == beforeReasoning:
		t.release()
	case t.state == opening, t.state == insideReasoning:
		t.out.text(Reasoning, t.held)
	}
	t.content.close(cut)
}
