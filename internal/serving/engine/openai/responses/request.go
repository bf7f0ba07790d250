package responses

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/structured"
)

// Interface returns the interface for [openai.Config]. It has a memory of responses of its own.
func Interface() openai.Interface {
	m := newMemory()
	return openai.Interface{Paths: []openai.Path{{Name: "/v1/responses", Answer: m.create}}}
}

// create answers POST /v1/responses.
func (m *memory) create(s *openai.Server, w http.ResponseWriter, r *http.Request) error {
	var b body
	if err := s.Decode(w, r, &b, otherFields); err != nil {
		return err
	}
	client := s.Client(r)
	if err := b.recall(m, client, int(s.MaxBody())); err != nil {
		return err
	}
	c, err := b.chat()
	if err != nil {
		return err
	}
	repeated, tools, keep := b.response(s.Name(c.Model)), b.clientTools, b.keeper(m, client)
	return s.Chat(w, r, c, func(send openai.Send) openai.Reply {
		reply := newReply(repeated, send)
		reply.tools, reply.keep = tools, keep
		return reply
	})
}

// A body is the body of a request.
type body struct {
	Model             string            `json:"model"`
	Input             json.RawMessage   `json:"input"`
	Instructions      *string           `json:"instructions"`
	MaxOutputTokens   *int              `json:"max_output_tokens"`
	Temperature       *float64          `json:"temperature"`
	TopP              *float64          `json:"top_p"`
	Tools             []json.RawMessage `json:"tools"`
	ToolChoice        json.RawMessage   `json:"tool_choice"`
	ParallelToolCalls *bool             `json:"parallel_tool_calls"`
	Text              json.RawMessage   `json:"text"`
	Reasoning         json.RawMessage   `json:"reasoning"`
	Stream            bool              `json:"stream"`
	Metadata          json.RawMessage   `json:"metadata"`
	Include           []string          `json:"include"`
	Store             *bool             `json:"store"`
	Previous          string            `json:"previous_response_id"`
	Truncation        *string           `json:"truncation"`

	earlier, given []json.RawMessage // the items of the response before, and those of the input

	clientTools map[string]clientTool // by the names by which the model calls them
	warnings    []string
	larkLeft    int // see larkPattern
}

// otherFields are further fields of a body. The harmless ones do not change an answer, or concern only tools on
// OpenAI's servers. The refused ones need state that is not stored, or would change the answer.
var otherFields = openai.Fields{
	Harmless: []string{"max_tool_calls", "stream_options", "user", "client_metadata"}, // the last one is Codex's
	Refused: map[string]string{
		"conversation":       "no conversations are stored; use previous_response_id, or send the earlier items in input",
		"background":         "responses are not computed in the background; use stream",
		"prompt":             "no prompts are stored; use instructions and input",
		"context_management": "",
		"moderation":         "",
		"top_logprobs":       "use /v1/chat/completions",
		"max_tokens":         "use max_output_tokens",
		"response_format":    "use text.format",
	},
}

// included are the values of the field include that are accepted, because they do not change an answer. Most
// concern tools and inputs that are not supported. Encrypted reasoning is accepted because no answer has any.
var included = []string{"reasoning.encrypted_content", "web_search_call.results", "web_search_call.action.sources",
	"file_search_call.results", "computer_call_output.output.image_url", "code_interpreter_call.outputs",
	"message.input_image.image_url"}

func (b *body) check() error {
	unknown := slices.IndexFunc(b.Include, func(name string) bool { return !slices.Contains(included, name) })
	switch {
	case b.Truncation != nil && *b.Truncation != "disabled":
		return openai.Invalid("truncation", "truncation is %q; only disabled is supported.", *b.Truncation)
	case slices.Contains(b.Include, "message.output_text.logprobs"):
		return openai.Invalid("include", "message.output_text.logprobs is not supported; use logprobs of /v1/chat/completions.")
	case unknown >= 0:
		return openai.Invalid("include", "include has %q, which is not known; %s are.", b.Include[unknown], strings.Join(included, ", "))
	case b.MaxOutputTokens != nil && *b.MaxOutputTokens < 1:
		return openai.Invalid("max_output_tokens", "max_output_tokens is %d; it must be at least 1.", *b.MaxOutputTokens)
	}
	return b.checkMetadata()
}

// OpenAI's limits of metadata.
const (
	maxPairs = 16
	maxKey   = 64  // characters
	maxValue = 512 // characters
)

// checkMetadata returns an error for metadata that OpenAI's interface refuses. It removes white space and double keys
// from b.Metadata, so that the limits also limit its bytes.
func (b *body) checkMetadata() error {
	if openai.IsNull(b.Metadata) {
		return nil
	}
	var pairs map[string]any
	if json.Unmarshal(b.Metadata, &pairs) != nil {
		return openai.Invalid("metadata", "metadata is not a JSON object.")
	}
	if len(pairs) > maxPairs {
		return openai.Invalid("metadata", "metadata has %d pairs; at most %d are possible.", len(pairs), maxPairs)
	}
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		value, isText := pairs[key].(string)
		switch k, v := utf8.RuneCountInString(key), utf8.RuneCountInString(value); {
		case k > maxKey:
			return openai.Invalid("metadata", "A key of metadata has %d characters; at most %d are possible.", k, maxKey)
		case !isText:
			return openai.Invalid("metadata", "The value of %q in metadata is not a string.", key)
		case v > maxValue:
			return openai.Invalid("metadata", "The value of %q in metadata has %d characters; at most %d are possible.", key, v, maxValue)
		}
	}
	text, err := json.Marshal(pairs)
	b.Metadata = text
	return err
}

// chat translates a body.
func (b *body) chat() (*openai.Chat, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	c := &openai.Chat{Model: b.Model, Stream: b.Stream, MessagesField: "input", OneCall: b.ParallelToolCalls != nil && !*b.ParallelToolCalls,
		ReplyBytes: b.repeatedBytes() + b.keptBytes(), Request: openai.NewRequest(b.Temperature, b.TopP)}
	c.TooLong, c.TooLongEvent = tooLong, true
	c.Request.MaxTokens = math.MaxInt
	if b.MaxOutputTokens != nil {
		c.Request.MaxTokens = *b.MaxOutputTokens
	}
	if b.Instructions != nil && *b.Instructions != "" {
		c.Messages = append(c.Messages, chat.Message{Role: "system", Content: *b.Instructions})
	}
	for _, read := range []func(*openai.Chat) error{b.readInput, b.readTools, b.readChoice, b.readText, b.readReasoning} {
		if err := read(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// tooLong is OpenAI's sentence about a prompt that is too long. Codex looks for its code in an event of the stream.
func tooLong(tokens, limit int) string {
	return fmt.Sprintf("Your input exceeds the context window of this model. Please adjust your input and try again. "+
		"It has %d tokens; at most %d are possible.", tokens, limit)
}

func (b *body) readText(c *openai.Chat) error {
	if openai.IsNull(b.Text) {
		return nil
	}
	text, err := openai.Object("text", "text", b.Text, "format", "verbosity")
	if err != nil {
		return err
	}
	if v := string(text["verbosity"]); v != "" && v != "null" && v != `"medium"` {
		return openai.Invalid("text.verbosity", "text.verbosity is not supported; leave it out.")
	}
	if openai.IsNull(text["format"]) {
		return nil
	}
	c.FormField = "text.format"
	var format struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
		Strict      bool            `json:"strict"`
	}
	if err := openai.ReadObject(c.FormField, c.FormField, text["format"], &format); err != nil {
		return err
	}
	switch {
	case format.Type == "text":
		return nil
	case format.Type == "json_object":
		c.Form = &structured.Form{JSONObject: true}
		return nil
	case format.Type != "json_schema":
		return openai.Invalid(c.FormField, "The type of text.format is not known; text, json_object and json_schema are.")
	case openai.IsNull(format.Schema):
		return openai.Invalid(c.FormField, "text.format has no schema.")
	case format.Name == "":
		return openai.Invalid(c.FormField, "text.format has no name; OpenAI's interface needs one.")
	}
	c.Form, err = openai.SchemaForm(c.FormField, format.Schema)
	return err
}

// readReasoning sets the effort. The answer has the whole reasoning, so summary has no effect.
func (b *body) readReasoning(c *openai.Chat) error {
	if openai.IsNull(b.Reasoning) {
		return nil
	}
	var fields struct {
		Effort          string `json:"effort"`
		Summary         string `json:"summary"`
		GenerateSummary string `json:"generate_summary"`
	}
	if err := openai.ReadObject("reasoning", "reasoning", b.Reasoning, &fields); err != nil {
		return err
	}
	c.Effort, c.EffortField = fields.Effort, "reasoning.effort"
	if s := cmp.Or(fields.Summary, fields.GenerateSummary); !slices.Contains([]string{"", "auto", "concise", "detailed"}, s) {
		return openai.Invalid("reasoning", "reasoning.summary is %q; auto, concise and detailed are known.", s)
	}
	return nil
}
