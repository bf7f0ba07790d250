package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	"llmmemory/internal/serving/engine/openai"
)

// A body is the body of a request.
type body struct {
	Model         string            `json:"model"`
	MaxTokens     *int              `json:"max_tokens"`
	System        json.RawMessage   `json:"system"`
	Messages      []message         `json:"messages"`
	Tools         []json.RawMessage `json:"tools"`
	ToolChoice    json.RawMessage   `json:"tool_choice"`
	Thinking      json.RawMessage   `json:"thinking"`
	OutputConfig  json.RawMessage   `json:"output_config"`
	StopSequences []string          `json:"stop_sequences"`
	Temperature   *float64          `json:"temperature"`
	TopP          *float64          `json:"top_p"`
	TopK          *int              `json:"top_k"`
	Stream        bool              `json:"stream"`

	ContextManagement json.RawMessage `json:"context_management"`
}

// otherFields are fields of a request that the server knows but does not implement. It ignores the Harmless fields
// and refuses requests with the Refused fields.
var otherFields = openai.Fields{
	Harmless: []string{"metadata", "service_tier", "cache_control", "inference_geo", "speed", "diagnostics"},
	Refused: map[string]string{"container": "", "mcp_servers": "", "output_format": "use output_config.format",
		"response_format": "use output_config.format"},
}

// checkEdits returns an error if context_management asks for anything but to keep all thinking. A Chat always has all
// thinking; its template may leave it out.
func (b *body) checkEdits() error {
	if openai.IsNull(b.ContextManagement) {
		return nil
	}
	const field = "context_management"
	var management struct {
		Edits []struct {
			Type string
			Keep any
		} `json:"edits"`
	}
	if err := openai.ReadObject(field, field, b.ContextManagement, &management); err != nil {
		return err
	}
	for _, e := range management.Edits {
		if e.Type != "clear_thinking_20251015" || e.Keep != "all" {
			return openai.Invalid(field, `The edit %q of context_management is not supported by this server; clear_thinking_20251015 with `+
				`"keep": "all" is.`, e.Type)
		}
	}
	return nil
}

// chat translates a body. It leaves out max_tokens.
func (b *body) chat() (*openai.Chat, error) {
	if err := b.checkEdits(); err != nil {
		return nil, err
	}
	c := &openai.Chat{Model: b.Model, Stream: b.Stream, MessagesField: "messages", Request: openai.NewRequest(b.Temperature, b.TopP)}
	c.Request.Stop = b.StopSequences
	if b.TopK != nil {
		c.Request.TopK = *b.TopK
	}
	if err := c.ReadThinking(b.Thinking); err != nil {
		return nil, err
	}
	for _, read := range []func(*openai.Chat) error{b.readMessages, b.readTools, b.readChoice, b.readOutput} {
		if err := read(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (b *body) readMessages(c *openai.Chat) error {
	var all drafts
	if !openai.IsNull(b.System) {
		blocks, err := readContent("system", "system", b.System, "text")
		if err != nil {
			return err
		}
		if list := withoutBilling(texts(blocks)); strings.Join(list, "") != "" {
			all.withRole("system").texts = list
		}
	}
	if len(b.Messages) == 0 {
		return openai.Invalid("messages", "messages is missing or empty.")
	}
	for i := range b.Messages {
		if err := all.add(i, &b.Messages[i], c); err != nil {
			return err
		}
	}
	c.Messages = all.messages()
	// As in Anthropic's interface, the answer continues the last message if that is the assistant's text.
	last := &c.Messages[len(c.Messages)-1]
	c.Continue = last.Role == "assistant" && len(last.ToolCalls) == 0
	if c.Continue && last.Content == "" {
		return openai.Invalid("messages", "The last message is the assistant's and has no text that the answer could continue.")
	}
	return nil
}

// billing is the beginning of the line that Claude Code puts before its system prompt. The line is for Anthropic's
// servers and differs in every request, so a prompt with it would never be found in the prefix cache.
const billing = "x-anthropic-billing-header:"

// withoutBilling returns the texts of system without the line of Claude Code.
func withoutBilling(texts []string) []string {
	if len(texts) == 0 || !strings.HasPrefix(texts[0], billing) {
		return texts
	}
	if _, rest, more := strings.Cut(texts[0], "\n"); more {
		return append([]string{strings.TrimLeft(rest, "\r\n")}, texts[1:]...)
	}
	return texts[1:]
}

func (b *body) readTools(c *openai.Chat) error {
	for i, text := range b.Tools {
		var kind struct {
			Type string `json:"type"`
		}
		name := fmt.Sprintf("Tool %d", i)
		if err := openai.Read("tools", name, text, &kind); err != nil {
			return err
		}
		if kind.Type != "" && kind.Type != "custom" {
			return openai.Invalid("tools", "%s has the type %q, which is not supported by this server; tools with an "+
				"input_schema are.", name, kind.Type)
		}
		t, err := openai.ReadTool(name, text, "input_schema", "type", "cache_control", "eager_input_streaming", "allowed_callers")
		switch {
		case err != nil:
			return err
		case t.Name == "":
			return openai.Invalid("tools", "%s has no name.", name)
		case t.Parameters == nil:
			return openai.Invalid("tools", "%s has no input_schema.", name)
		}
		c.Tools = append(c.Tools, t)
	}
	return nil
}

func (b *body) readChoice(c *openai.Chat) error {
	if openai.IsNull(b.ToolChoice) {
		return nil
	}
	var choice struct {
		Type    string `json:"type"`
		Name    string `json:"name"`
		OneCall bool   `json:"disable_parallel_tool_use"`
	}
	if err := openai.ReadObject("tool_choice", "tool_choice", b.ToolChoice, &choice); err != nil {
		return err
	}
	if choice.Name != "" && choice.Type != "tool" {
		return openai.Invalid("tool_choice", "tool_choice has a name, which only the type tool may have.")
	}
	c.OneCall = choice.OneCall
	switch choice.Type {
	case "":
		return openai.Invalid("tool_choice", "tool_choice has no type; auto, any, tool and none are known.")
	case "auto", "none":
		c.ToolChoice = choice.Type
	case "any":
		if len(b.Tools) == 0 {
			return openai.Invalid("tool_choice", "The type of tool_choice is any, but there are no tools.")
		}
		c.ToolChoice = "required"
	case "tool":
		if choice.Name == "" {
			return openai.Invalid("tool_choice", "tool_choice has the type tool, but no name.")
		}
		c.ToolChoice, c.Allowed, c.OneCall = "required", []string{choice.Name}, true
	default:
		return openai.Invalid("tool_choice", "The type of tool_choice is %q; auto, any, tool and none are known.", choice.Type)
	}
	return nil
}

func (b *body) readOutput(c *openai.Chat) error {
	if openai.IsNull(b.OutputConfig) {
		return nil
	}
	var fields struct {
		Effort string          `json:"effort"`
		Format json.RawMessage `json:"format"`
	}
	if err := openai.ReadObject("output_config", "output_config", b.OutputConfig, &fields); err != nil {
		return err
	}
	c.Effort, c.EffortField = fields.Effort, "output_config.effort"
	if openai.IsNull(fields.Format) {
		return nil
	}
	var format struct {
		Type   string          `json:"type"`
		Schema json.RawMessage `json:"schema"`
	}
	c.FormField = "output_config.format"
	if err := openai.ReadObject(c.FormField, c.FormField, fields.Format, &format); err != nil {
		return err
	}
	if format.Type != "json_schema" || openai.IsNull(format.Schema) {
		return openai.Invalid(c.FormField, "output_config.format is not of the type json_schema with a schema.")
	}
	var err error
	c.Form, err = openai.SchemaForm(c.FormField, format.Schema)
	return err
}
