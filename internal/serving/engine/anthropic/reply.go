package anthropic

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/toolparser"
)

type (
	// A messageBody is a message of the assistant.
	messageBody struct {
		ID           string    `json:"id"`
		Type         string    `json:"type"`
		Role         string    `json:"role"`
		Model        string    `json:"model"`
		Content      []content `json:"content"`
		StopReason   *string   `json:"stop_reason"`
		StopSequence *string   `json:"stop_sequence"`
		Usage        usage     `json:"usage"`
	}
	// A content is a block of an answer. Fields that its type does not have are nil or empty.
	content struct {
		Type      string          `json:"type"`
		Text      *string         `json:"text,omitempty"`
		Thinking  *string         `json:"thinking,omitempty"`
		Signature *string         `json:"signature,omitempty"`
		ID        string          `json:"id,omitempty"`
		Name      string          `json:"name,omitempty"`
		Input     json.RawMessage `json:"input,omitempty"`
	}
	usage struct {
		InputTokens   int `json:"input_tokens"` // without those from the cache
		CacheCreation int `json:"cache_creation_input_tokens"`
		CacheRead     int `json:"cache_read_input_tokens"`
		OutputTokens  int `json:"output_tokens"`
	}
)

type (
	// An event is an event of a stream. Fields that its type does not have are nil.
	event struct {
		Type    string       `json:"type"`
		Message *messageBody `json:"message,omitempty"`
		Index   *int         `json:"index,omitempty"`
		Block   *content     `json:"content_block,omitempty"`
		Delta   any          `json:"delta,omitempty"` // a blockDelta or messageDelta
		Usage   *usage       `json:"usage,omitempty"`
	}
	blockDelta struct {
		Type      string  `json:"type"`
		Text      *string `json:"text,omitempty"`
		Thinking  *string `json:"thinking,omitempty"`
		Signature *string `json:"signature,omitempty"`
		JSON      *string `json:"partial_json,omitempty"`
	}
	messageDelta struct {
		StopReason   *string `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}
)

// A reply makes a message from the events of an answer. If there is a stream, it sends Anthropic's events.
type reply struct {
	message messageBody
	send    openai.Send // nil if the message is sent when it is complete
	open    bool        // the last block has not ended
	text    []byte      // of the last block
}

func newReply(model string, send openai.Send) *reply {
	return &reply{send: send,
		message: messageBody{ID: openai.NewID("msg_"), Type: "message", Role: "assistant", Model: model, Content: []content{}}}
}

func (r *reply) event(e event) {
	if r.send != nil {
		r.send(e.Type, e)
	}
}

// blockEvent sends an event about the last block.
func (r *reply) blockEvent(e event) {
	index := len(r.message.Content) - 1
	e.Index = &index
	r.event(e)
}

// Begin sends message_start.
func (r *reply) Begin(u openai.Usage) {
	m := r.message
	m.Usage = usageOf(u)
	r.event(event{Type: "message_start", Message: &m})
}

// Add adds an event of the answer.
func (r *reply) Add(e toolparser.Event) {
	empty := ""
	switch e.Kind {
	case toolparser.Reasoning:
		r.begin(content{Type: "thinking", Thinking: &empty, Signature: &empty})
		r.add(blockDelta{Type: "thinking_delta", Thinking: &e.Text}, e.Text)
	case toolparser.Content:
		r.begin(content{Type: "text", Text: &empty})
		r.add(blockDelta{Type: "text_delta", Text: &e.Text}, e.Text)
	case toolparser.Call:
		r.end()
		r.begin(content{Type: "tool_use", ID: e.ID, Name: e.Name, Input: json.RawMessage("{}")})
	case toolparser.Arguments:
		r.add(blockDelta{Type: "input_json_delta", JSON: &e.Text}, e.Text)
	case toolparser.CallEnd:
		r.end()
	}
}

// begin begins a new block, unless the last block has the same type and has not ended.
func (r *reply) begin(c content) {
	if n := len(r.message.Content); r.open && r.message.Content[n-1].Type == c.Type {
		return
	}
	r.end()
	r.open, r.text = true, nil
	r.message.Content = append(r.message.Content, c)
	r.blockEvent(event{Type: "content_block_start", Block: &c})
}

func (r *reply) add(d blockDelta, text string) {
	if r.send == nil {
		r.text = append(r.text, text...)
	}
	r.blockEvent(event{Type: "content_block_delta", Delta: d})
}

// end ends the last block.
func (r *reply) end() {
	if !r.open {
		return
	}
	r.open = false
	c := &r.message.Content[len(r.message.Content)-1]
	text := string(r.text)
	switch c.Type {
	case "text":
		c.Text = &text
	case "thinking":
		c.Thinking = &text
		r.blockEvent(event{Type: "content_block_delta", Delta: blockDelta{Type: "signature_delta", Signature: c.Signature}})
	case "tool_use":
		c.Input = input(text)
	}
	r.blockEvent(event{Type: "content_block_stop"})
}

// input returns the input of a tool_use block from the arguments of a call. If the answer was cut, the arguments may be
// only the beginning of an object. In this case input returns an object with the values that are complete. Anthropic's
// clients do the same when a stream is cut. If the arguments are neither an object nor the beginning of an object,
// input wraps them in an object, as Anthropic advises clients to do.
func input(arguments string) json.RawMessage {
	if arguments == "" {
		return json.RawMessage("{}")
	}
	if json.Valid([]byte(arguments)) && strings.HasPrefix(strings.TrimSpace(arguments), "{") {
		return json.RawMessage(arguments)
	}
	if text := complete(arguments); text != "" {
		return json.RawMessage(text)
	}
	wrapped, _ := json.Marshal(map[string]string{"INVALID_JSON": arguments})
	return wrapped
}

// complete returns an object with the complete values of text, which is the beginning of a JSON object. If text is not
// the beginning of an object, it returns "".
func complete(text string) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	type container struct {
		end string
		key bool // the next value is a key
	}
	var open []container // objects and lists that have not ended
	end := int64(0)      // of what is complete
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			text = text[:end]
			for _, c := range slices.Backward(open) {
				text += c.end
			}
			return text
		case err != nil, len(open) == 0 && token != json.Delim('{'):
			return ""
		}
		if n := len(open); n > 0 && open[n-1].end == "}" {
			wasKey := open[n-1].key
			open[n-1].key = !wasKey
			if wasKey && token != json.Delim('}') {
				continue
			}
		}
		switch token {
		case json.Delim('{'):
			open = append(open, container{"}", true})
		case json.Delim('['):
			open = append(open, container{"]", false})
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		default:
			if _, number := token.(json.Number); number && d.InputOffset() == int64(len(text)) {
				continue // more digits may follow
			}
		}
		end = d.InputOffset()
	}
}

// End ends the message and returns it.
func (r *reply) End(e openai.Ending) any {
	r.end()
	reason := "end_turn"
	stopped, byText := e.StopReason.(string)
	switch {
	case e.Calls:
		reason = "tool_use"
	case e.Finish == engine.FinishLength && e.ContextFull:
		reason = "model_context_window_exceeded"
	case e.Finish == engine.FinishLength:
		reason = "max_tokens"
	case byText:
		reason = "stop_sequence"
		r.message.StopSequence = &stopped
	}
	r.message.StopReason, r.message.Usage = &reason, usageOf(e.Usage)
	r.event(event{Type: "message_delta", Delta: messageDelta{&reason, r.message.StopSequence}, Usage: &r.message.Usage})
	r.event(event{Type: "message_stop"})
	return r.message
}

// Fail sends an error as an event.
func (r *reply) Fail(status int, _, message string) {
	if r.send != nil {
		r.send("error", errorBody{Type: "error", Error: errorObject{errorType(status), message}})
	}
}

// KeepAlive sends a ping.
func (r *reply) KeepAlive() { r.event(event{Type: "ping"}) }

func usageOf(u openai.Usage) usage {
	return usage{InputTokens: u.Prompt - u.Cached, CacheRead: u.Cached, OutputTokens: u.Completion}
}
