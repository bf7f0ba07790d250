package responses

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/toolparser"
)

type (
	// A response is the answer to a request. As in OpenAI's interface, it repeats settings of the request.
	response struct {
		ID                string            `json:"id"`
		Object            string            `json:"object"`
		CreatedAt         int64             `json:"created_at"`
		Status            string            `json:"status"`
		Error             *failure          `json:"error"`
		Incomplete        *incomplete       `json:"incomplete_details"`
		Instructions      *string           `json:"instructions"`
		MaxOutputTokens   *int              `json:"max_output_tokens"`
		Metadata          json.RawMessage   `json:"metadata"`
		Model             string            `json:"model"`
		Output            []*output         `json:"output"`
		ParallelToolCalls bool              `json:"parallel_tool_calls"`
		Previous          *string           `json:"previous_response_id"`
		Reasoning         json.RawMessage   `json:"reasoning"`
		Store             bool              `json:"store"`
		Temperature       float64           `json:"temperature"`
		Text              json.RawMessage   `json:"text"`
		ToolChoice        json.RawMessage   `json:"tool_choice"`
		Tools             []json.RawMessage `json:"tools"`
		TopP              float64           `json:"top_p"`
		Truncation        string            `json:"truncation"`
		Usage             *usage            `json:"usage"`
	}
	failure struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	incomplete struct {
		Reason string `json:"reason"`
	}
	// An output is an item of the output: a message, a reasoning, a function_call or a custom_tool_call. Fields that its
	// type does not have are nil or empty.
	output struct {
		ID        string  `json:"id"`
		Type      string  `json:"type"`
		Status    string  `json:"status"`
		Role      string  `json:"role,omitempty"`
		Content   *[]part `json:"content,omitempty"`
		Summary   *[]part `json:"summary,omitempty"`
		CallID    string  `json:"call_id,omitempty"`
		Name      string  `json:"name,omitempty"`
		Namespace string  `json:"namespace,omitempty"`
		Arguments *string `json:"arguments,omitempty"`
		Input     *string `json:"input,omitempty"`
	}
	part struct {
		Type        string  `json:"type"`
		Text        string  `json:"text"`
		Annotations *[]part `json:"annotations,omitempty"`
		Logprobs    *[]part `json:"logprobs,omitempty"`
	}
	usage struct {
		Input        int           `json:"input_tokens"`
		InputDetails inputDetails  `json:"input_tokens_details"`
		Output       int           `json:"output_tokens"`
		Details      outputDetails `json:"output_tokens_details"`
		Total        int           `json:"total_tokens"`
	}
	inputDetails struct {
		Cached int `json:"cached_tokens"`
	}
	outputDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	}
	// An event is an event of a stream. Fields that its type does not have are nil or empty.
	event struct {
		Type         string    `json:"type"`
		Sequence     int       `json:"sequence_number"`
		Response     *response `json:"response,omitempty"`
		ItemID       string    `json:"item_id,omitempty"`
		OutputIndex  *int      `json:"output_index,omitempty"`
		ContentIndex *int      `json:"content_index,omitempty"`
		Item         *output   `json:"item,omitempty"`
		Part         *part     `json:"part,omitempty"`
		Delta        *string   `json:"delta,omitempty"`
		Text         *string   `json:"text,omitempty"`
		Name         string    `json:"name,omitempty"`
		Arguments    *string   `json:"arguments,omitempty"`
		Input        *string   `json:"input,omitempty"`
		Logprobs     *[]part   `json:"logprobs,omitempty"`
	}
)

// A reply makes a response from the events of an answer. If there is a stream, it sends OpenAI's events.
type reply struct {
	response response
	send     openai.Send // nil if the response is sent when it is complete
	tools    map[string]clientTool
	keep     func(id string, output []*output) // keeps the response, or nil
	sequence int                               // number of the next event
	open     *output                           // the last item, if it has not ended
	text     []byte                            // of the open item
}

// response returns the response of a request whose answer has not begun. It keeps only the fields of the body that a
// response repeats.
func (b *body) response(model string) response {
	r := response{
		ID: openai.NewID("resp_"), Object: "response", CreatedAt: time.Now().Unix(), Status: "in_progress",
		Instructions: b.Instructions, MaxOutputTokens: b.MaxOutputTokens, Metadata: b.answerMetadata(), Model: model,
		Output: []*output{}, ParallelToolCalls: b.ParallelToolCalls == nil || *b.ParallelToolCalls,
		Reasoning: orElse(b.Reasoning, `{"effort":null,"summary":null}`), Temperature: 1, Text: orElse(b.Text, `{"format":{"type":"text"}}`),
		ToolChoice: orElse(b.ToolChoice, `"auto"`), Tools: append([]json.RawMessage{}, b.Tools...), TopP: 1, Truncation: "disabled"}
	if b.Temperature != nil {
		r.Temperature = *b.Temperature
	}
	if b.TopP != nil {
		r.TopP = *b.TopP
	}
	if previous := b.Previous; previous != "" {
		r.Previous = &previous
	}
	r.Store = b.stored()
	return r
}

// repeatedBytes returns the bytes of the body that a response repeats.
func (b *body) repeatedBytes() int {
	n := len(b.Metadata) + len(b.Reasoning) + len(b.Text) + len(b.ToolChoice)
	if b.Instructions != nil {
		n += len(*b.Instructions)
	}
	for _, t := range b.Tools {
		n += len(t)
	}
	return n
}

// newReply returns a reply that continues a response. If there is a stream, it sends the first events.
func newReply(begun response, send openai.Send) *reply {
	r := &reply{send: send, response: begun}
	for _, name := range []string{"response.created", "response.in_progress"} {
		r.event(event{Type: name, Response: &r.response})
	}
	return r
}

// answerMetadata returns the metadata of the answer: those of the request and the warnings.
func (b *body) answerMetadata() json.RawMessage {
	given := orElse(b.Metadata, "{}")
	var all map[string]any
	if len(b.warnings) == 0 || json.Unmarshal(given, &all) != nil {
		return given
	}
	all["warning"] = shortened(strings.Join(b.warnings, " "))
	if text, err := json.Marshal(all); err == nil {
		return text
	}
	return given
}

// shortened returns the beginning of a text that is longer than a value of metadata may be.
func shortened(text string) string {
	if all := []rune(text); len(all) > maxValue {
		return string(all[:maxValue-3]) + "..."
	}
	return text
}

func orElse(value json.RawMessage, other string) json.RawMessage {
	if openai.IsNull(value) {
		return json.RawMessage(other)
	}
	return bytes.TrimSpace(value)
}

func (r *reply) event(e event) {
	if r.send == nil {
		return
	}
	e.Sequence = r.sequence
	r.sequence++
	r.send(e.Type, e)
}

// itemEvent sends an event about the open item.
func (r *reply) itemEvent(e event) {
	index := len(r.response.Output) - 1
	e.OutputIndex = &index
	if e.Item == nil {
		e.ItemID = r.open.ID
		if !r.open.isCall() {
			e.ContentIndex = new(int)
		}
	}
	r.event(e)
}

// Begin does nothing: newReply sends the first events.
func (r *reply) Begin(openai.Usage) {}

// Add adds an event of the answer.
func (r *reply) Add(e toolparser.Event) {
	switch e.Kind {
	case toolparser.Reasoning:
		r.begin(&output{ID: openai.NewID("rs_"), Type: "reasoning", Content: &[]part{}, Summary: &[]part{}})
		r.delta("response.reasoning_text.delta", e.Text, nil)
	case toolparser.Content:
		r.begin(&output{ID: openai.NewID("msg_"), Type: "message", Role: "assistant", Content: &[]part{}})
		r.delta("response.output_text.delta", e.Text, &[]part{})
	case toolparser.Call:
		r.end("completed")
		tool, known := r.tools[e.Name]
		if !known {
			tool.name = e.Name
		}
		o := &output{ID: openai.NewID("fc_"), Type: "function_call", CallID: e.ID, Name: tool.name, Namespace: tool.namespace}
		if tool.custom {
			o.ID, o.Type, o.Input = openai.NewID("ctc_"), customCall, new(string)
		} else {
			o.Arguments = new(string)
		}
		r.begin(o)
	case toolparser.Arguments:
		if r.open != nil && r.open.Type == customCall {
			r.text = append(r.text, e.Text...) // the input is known when the arguments are complete
			return
		}
		r.delta("response.function_call_arguments.delta", e.Text, nil)
	case toolparser.CallEnd:
		if json.Valid(r.text) { // otherwise the answer may be cut, which End knows
			r.end("completed")
		}
	}
}

// customCall is the type of an item that calls a custom tool.
const customCall = "custom_tool_call"

func (o *output) isCall() bool { return o.Type == "function_call" || o.Type == customCall }

// begin begins a new item, unless the open item has the same type.
func (r *reply) begin(o *output) {
	if r.open != nil && r.open.Type == o.Type {
		return
	}
	r.end("completed")
	o.Status = "in_progress"
	r.response.Output = append(r.response.Output, o)
	r.open, r.text = o, nil
	r.itemEvent(event{Type: "response.output_item.added", Item: o})
	if !o.isCall() {
		r.itemEvent(event{Type: "response.content_part.added", Part: newPart(o.Type, "")})
	}
}

func newPart(item, text string) *part {
	if item == "reasoning" {
		return &part{Type: "reasoning_text", Text: text}
	}
	return &part{Type: "output_text", Text: text, Annotations: &[]part{}, Logprobs: &[]part{}}
}

func (r *reply) delta(name, text string, logprobs *[]part) {
	r.text = append(r.text, text...)
	r.itemEvent(event{Type: name, Delta: &text, Logprobs: logprobs})
}

// end ends the open item, if there is one.
func (r *reply) end(status string) {
	o := r.open
	if o == nil {
		return
	}
	o.Status = status
	text := string(r.text)
	switch o.Type {
	case "function_call":
		o.Arguments = &text
		r.itemEvent(event{Type: "response.function_call_arguments.done", Arguments: &text, Name: o.Name})
	case customCall:
		input := inputOf(text)
		o.Input = &input
		r.itemEvent(event{Type: "response.custom_tool_call_input.delta", Delta: &input})
		r.itemEvent(event{Type: "response.custom_tool_call_input.done", Input: &input})
	case "reasoning":
		r.itemEvent(event{Type: "response.reasoning_text.done", Text: &text})
	default:
		r.itemEvent(event{Type: "response.output_text.done", Text: &text, Logprobs: &[]part{}})
	}
	if o.Content != nil {
		p := newPart(o.Type, text)
		o.Content = &[]part{*p}
		r.itemEvent(event{Type: "response.content_part.done", Part: p})
	}
	r.itemEvent(event{Type: "response.output_item.done", Item: o})
	r.open, r.text = nil, nil
}

// End ends the response and returns it.
func (r *reply) End(e openai.Ending) any {
	r.response.Status = "completed"
	if e.Finish == engine.FinishLength {
		r.response.Status, r.response.Incomplete = "incomplete", &incomplete{"max_output_tokens"}
	}
	r.end(r.response.Status)
	u := e.Usage
	r.response.Usage = &usage{u.Prompt, inputDetails{u.Cached}, u.Completion, outputDetails{u.Reasoning}, u.Prompt + u.Completion}
	if r.keep != nil {
		r.keep(r.response.ID, r.response.Output)
	}
	r.event(event{Type: "response." + r.response.Status, Response: &r.response})
	return r.response
}

// Fail sends an error as an event.
func (r *reply) Fail(_ int, code, message string) {
	r.response.Status, r.response.Error = "failed", &failure{cmp.Or(code, "server_error"), message}
	r.event(event{Type: "response.failed", Response: &r.response})
}

// KeepAlive sends the event that the response is in progress. A comment would not do: Codex's timeout counts events.
func (r *reply) KeepAlive() { r.event(event{Type: "response.in_progress", Response: &r.response}) }
