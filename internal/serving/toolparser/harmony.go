package toolparser

import (
	"bytes"
	"strings"
)

// Markers of gpt-oss's harmony format (github.com/openai/harmony, docs/format.md). An answer is a list of messages:
//
//	<|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>final<|message|>content
//	<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{"arguments": 1}
//
// <|call|> ends a call, and <|return|> ends content. Both are end tokens of the model.
const (
	markStart   = "<|start|>"
	markChannel = "<|channel|>"
	markMessage = "<|message|>"
	markEnd     = "<|end|>"
	markCall    = "<|call|>"
	markReturn  = "<|return|>"
	markFormat  = "<|constrain|>"
)

// Texts of the harmony format that a constraint makes a model write.
const (
	HarmonyReasoning = markChannel + "analysis" + markMessage
	HarmonyPreamble  = markChannel + "commentary" + markMessage
	HarmonyContent   = markChannel + "final" + markMessage
	HarmonyNext      = markEnd + markStart + "assistant" // after reasoning or a preamble
)

var (
	harmonyMarks = []string{markStart, markChannel, markMessage, markEnd, markCall, markReturn, markFormat}
	headerBegins = []string{markStart, markChannel, markMessage, "to="}
	headerEnds   = []string{markMessage}
	bodyEnds     = []string{markStart, markEnd, markCall, markReturn}
	functions    = "functions."
)

// maxHeader limits the length of a header. If more than maxHeader bytes have no markMessage at their end, the parser
// treats them as content of the answer.
const maxHeader = 1024

// harmony parses an answer in the harmony format.
type harmony struct {
	out   *output
	calls bool // calls are shown as such, else as content

	body   bool   // after <|message|>
	kind   Kind   // of the body
	call   bool   // the body is the arguments of a call
	ended  bool   // a message has ended; until the next header only "assistant" is expected
	held   []byte // the header, or the part of a body that may begin a marker
	space  int    // bytes of space at the beginning of the header
	argued bool   // the call has arguments
}

func (h *harmony) next(b byte) {
	h.held = append(h.held, b)
	if h.body {
		h.read()
		return
	}
	switch {
	case h.out.completes(h.held, headerEnds) != "":
		h.begin(string(h.held[:len(h.held)-len(markMessage)]))
		h.held, h.space = h.held[:0], 0
	case h.isText(), len(h.held) > maxHeader:
		h.body, h.kind, h.call, h.space = true, Content, false, 0
		h.read()
	}
}

// isText reports whether the text in held is content without a header, as in an answer without markers. The text is
// content if it cannot be the beginning of a header. After the end of a message, isText returns false, because only a
// header can follow.
func (h *harmony) isText() bool {
	if h.ended {
		return false
	}
	h.space += h.out.spaceAfter(h.held[h.space:], space)
	return !h.out.agrees(headerBegins, h.held[h.space:])
}

// begin begins a message with a header.
func (h *harmony) begin(header string) {
	h.body, h.call, h.kind = true, false, Content
	h.out.looked += len(header)
	_, channel, _ := strings.Cut(header, markChannel)
	if strings.HasPrefix(strings.TrimSpace(channel), "analysis") {
		h.kind = Reasoning
	}
	_, recipient, addressed := strings.Cut(header, "to=")
	if !addressed {
		return
	}
	if i := strings.IndexAny(recipient, " <\t\r\n"); i >= 0 {
		recipient = recipient[:i]
	}
	name := strings.TrimPrefix(recipient, functions)
	if h.calls && IsName(name) && recipient != "assistant" {
		h.out.call("", name)
		h.call, h.kind, h.argued = true, Arguments, false
	}
}

// read shows a body up to a marker.
func (h *harmony) read() {
	if m := h.out.completes(h.held, bodyEnds); m != "" {
		h.show(h.held[:len(h.held)-len(m)])
		h.held = h.held[:0]
		h.endBody()
		return
	}
	n := len(h.held) - h.out.partialMarker(h.held, bodyEnds)
	h.show(h.held[:n])
	h.held = append(h.held[:0], h.held[n:]...)
}

func (h *harmony) show(text []byte) {
	if h.call && !h.argued {
		text = text[h.out.spaceAfter(text, space):]
	}
	if len(text) > 0 {
		h.argued = true
		h.out.text(h.kind, text)
	}
}

func (h *harmony) endBody() {
	if h.call {
		if !h.argued {
			h.out.text(Arguments, []byte("{}"))
		}
		h.out.callEnd()
	}
	h.body, h.call, h.ended = false, false, true
}

func (h *harmony) close(cut bool) {
	switch {
	case cut: // what is held may be a marker or a header
		h.out.dropped = h.calls && !h.body && bytes.Contains(h.held, []byte("to="))
	case h.body:
		h.show(h.held)
		if h.call {
			h.endBody()
		}
	case !h.ended && !bytes.Contains(h.held, []byte("<|")):
		h.out.text(Content, h.held)
	}
}
