package toolparser

import "bytes"

// A ToolParser describes how a family of models writes tool calls. A call follows one of the markers in
// Begin. If Bare is set, a JSON object or list at the beginning of a line may also be a call.
//
// A call is a JSON object with the members name and arguments (or parameters), or a list of such objects. If
// Named is set, a call can also be a name, the marker Named.Args and a JSON object. If Pythonic is set, a call and
// the items of a list can also be calls in Python's syntax. If Tagged is set, a call can only be a name and texts between
// tags. For the harmony format, none of these fields is set.
type ToolParser struct {
	Name       string
	Begin, End []string // markers before and after calls; End may be missing in the text
	Bare       bool     // an object or list at the beginning of a line is a call if it names a known tool
	Separator  byte     // between calls, or 0
	Named      *Named
	Tagged     *Tagged
	Pythonic   bool
	NineIDs    bool // ids have nine letters and digits
	Writing    Writing

	template [][]string
	harmony  bool
}

// Writing is the exact text of calls when a constraint makes the model write them. The text begins with
// Before and ends with After. Each call consists of Begin, the name, Middle, the arguments and End. Separator
// stands between two calls.
type Writing struct {
	Before, Begin, Middle, End, Separator, After string

	Marker string    // the beginning of calls that can be nothing else, or ""
	Other  [2]string // other texts that may be instead of Begin and Middle, or ""
	Once   bool      // an answer has one call
}

// Named describes calls that are a name followed by a JSON object. The object has only the arguments.
type Named struct {
	ID   string // the marker before an id, which may be missing in the text
	Args string // the marker before the arguments, or "" if they follow the name

	// Numbered means that the id of a call is Before, its name, ":" and a number, and that there is no other name.
	Numbered bool
	Before   string
}

// markers returns the texts that may be special tokens of the model.
func (t *ToolParser) markers() []string {
	all := append(append([]string(nil), t.Begin...), t.End...)
	if t.Named != nil {
		all = append(all, t.Named.ID, t.Named.Args)
	}
	return all
}

// calls finds calls in the text of an answer.
type calls struct {
	parser *ToolParser
	known  func(string) bool
	kind   func(tool, parameter string) ParameterKind
	out    *output

	outside Kind // of the text outside calls: Content, or Reasoning before the reasoning has ended

	tail      tail     // space and a part of a marker, or the text since a marker
	markers   []string // of the parser: where calls begin, then where they end
	line      bool     // only space since the beginning of the line
	afterCall bool     // a call was read, and since then only space, separators and markers of End
	reading   *shaped  // what follows a marker, or nil
	unread    []byte   // a part of a tag that the reader of a call has read before the result passed
}

// progress says what a byte that was read means for the call: whether the call continues or has ended.
type progress uint8

const (
	unfinished  progress = iota
	ended                // with this byte
	endedBefore          // before this byte, and only the call: a list may continue
	passed               // before this byte
	failed               // this is not a call
)

func (c *calls) next(b byte) {
	if c.reading == nil {
		c.scan(b)
		return
	}
	if !c.out.open {
		c.tail.held = append(c.tail.held, b)
	}
	calls := c.out.calls
	p := c.reading.next(b)
	if c.out.calls > calls {
		c.tail.clear()
	}
	switch p {
	case ended:
		c.stop()
	case passed:
		c.stop()
		unread := append(c.unread, b)
		c.unread = nil
		for _, b := range unread {
			c.next(b)
		}
	case failed:
		if !c.reading.begun() {
			c.stop()
			return
		}
		// The bytes before b that follow a call in a list and seemed to begin another one are text.
		held := bytes.Clone(bytes.TrimLeft(bytes.TrimSuffix(c.tail.held, []byte{b}), ","+space))
		c.stop()
		if len(held) > 0 {
			c.afterCall = false
			c.content(held)
		}
		c.scan(b)
	}
}

// stop ends the call that is being read. If no Call event was reported for it, its text is content.
func (c *calls) stop() {
	if c.reading.begun() {
		c.out.callEnd()
		c.afterCall, c.line = true, true
	} else {
		c.content(c.tail.held)
	}
	c.tail.clear()
	c.reading = nil
}

// content shows text.
func (c *calls) content(text []byte) {
	for _, b := range text {
		c.line = b == '\n' || c.line && isSpace(b)
	}
	c.out.text(c.outside, text)
}

// endReasoning ends the reasoning: a call that has not been reported and text that was held back are reasoning. Line
// breaks at the end are dropped.
func (c *calls) endReasoning() {
	held := c.tail.held
	c.out.text(Reasoning, held[:c.out.spaceBefore(held, lineBreaks)])
	c.tail.clear()
	c.reading, c.line, c.outside = nil, true, Content
}

// scan reads a byte outside calls.
func (c *calls) scan(b byte) {
	if c.afterCall && (isSpace(b) && len(c.tail.held) == 0 || b == c.parser.Separator && b != 0) {
		return
	}
	c.tail.held = append(c.tail.held, b)
	held, markers := c.tail.held, c.parser.Begin
	if c.afterCall {
		if m := c.out.completes(held, c.parser.End); m != "" && len(m) == len(held) {
			c.tail.clear()
			return
		}
		markers = c.markers
	}
	if m := c.out.completes(held, c.parser.Begin); m != "" {
		c.begin(len(held)-len(m), nil)
		return
	}
	if c.parser.Bare && c.outside == Content && (b == '{' || b == '[') && c.beginsLine(held[:len(held)-1]) {
		c.begin(len(held)-1, []byte{b})
		return
	}
	c.tail.release(c.out, c.out.partialMarker(held, markers), func(text []byte) {
		c.afterCall = false
		c.content(text)
	})
}

// beginsLine reports whether what follows the held text is the first text of its line.
func (c *calls) beginsLine(held []byte) bool {
	line := c.line
	for _, b := range held {
		line = b == '\n' || line && isSpace(b)
	}
	c.out.looked += len(held)
	return line
}

// begin starts to read a call. The call's text is that after the first start bytes of the tail. The text before start is
// content, except for the space at its end. The parameter first has the bytes of the tail that the call's reader must
// read. For a call without a marker, first has the opening bracket. For a call with a marker, first is nil.
func (c *calls) begin(start int, first []byte) {
	c.tail.releaseBefore(c.out, start, c.content)
	c.reading = &shaped{calls: c, bare: first != nil || c.parser.Writing.Marker == "", reported: c.out.calls}
	for _, b := range first {
		c.reading.next(b)
	}
}

func (c *calls) close(cut bool) {
	switch {
	case c.reading != nil:
		if cut {
			c.out.dropped = !c.reading.begun() || c.reading.shape == listItem && !c.out.open
			c.tail.clear()
		} else if c.reading.call != nil {
			c.reading.call.close()
		}
		c.stop()
	case cut && c.out.partialMarker(c.tail.held, c.parser.Begin) > 0:
		c.tail.clear()
	}
	if held := c.tail.held; !c.afterCall && len(held) > 0 && (c.out.calls == 0 || c.out.spaceBefore(held, space) > 0) {
		c.content(held)
	}
}
