package anthropic

import (
	"encoding/json"
	"strings"

	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/structured"
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
	harmless
	unsupported
}

// harmless are fields that change no answer.
type harmless struct {
	Metadata     json.RawMessage `json:"metadata"`
	ServiceTier  json.RawMessage `json:"service_tier"`
	CacheControl json.RawMessage `json:"cache_control"`
	InferenceGeo json.RawMessage `json:"inference_geo"`
	Speed        json.RawMessage `json:"speed"`
	Diagnostics  json.RawMessage `json:"diagnostics"`
}

// unsupported are fields that would change the answer.
type unsupported struct {
	Container         json.RawMessage `json:"container"`
	MCPServers        json.RawMessage `json:"mcp_servers"`
	ContextManagement json.RawMessage `json:"context_management"`
	OutputFormat      json.RawMessage `json:"output_format"`
}

func (u *unsupported) check() error {
	if u.keepsThinking() {
		u.ContextManagement = nil
	}
	return openai.Refuse(openai.Field{Name: "container", Value: u.Container}, openai.Field{Name: "mcp_servers", Value: u.MCPServers},
		openai.Field{Name: "context_management", Value: u.ContextManagement},
		openai.Field{Name: "output_format", Value: u.OutputFormat, Instead: "use output_config.format"})
}

// keepsThinking reports whether context_management only asks to keep all thinking, which is what chats do.
func (u *unsupported) keepsThinking() bool {
	var management struct {
		Edits []struct {
			Type string
			Keep any
		}
	}
	if json.Unmarshal(u.ContextManagement, &management) != nil {
		return false
	}
	for _, e := range management.Edits {
		if e.Type != "clear_thinking_20251015" || e.Keep != "all" {
			return false
		}
	}
	return true
}

// chat translates a body. It leaves out max_tokens.
func (b *body) chat() (*openai.Chat, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	c := &openai.Chat{Model: b.Model, Stream: b.Stream, Texts: "messages", Request: openai.NewRequest(b.Temperature, b.TopP)}
	c.Request.Stop = b.StopSequences
	if b.TopK != nil {
		c.Request.TopK = *b.TopK
	}
	for _, read := range []func(*openai.Chat) error{b.readMessages, b.readTools, b.readChoice, b.readThinking, b.readOutput} {
		if err := read(c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (b *body) readMessages(c *openai.Chat) error {
	var all turns
	if !openai.IsNull(b.System) {
		blocks, err := readContent("system", "system", b.System, "text")
		if err != nil {
			return err
		}
		if strings.Join(texts(blocks), "") != "" {
			all.of("system").texts = texts(blocks)
		}
	}
	if len(b.Messages) == 0 {
		return openai.Invalid("messages", "messages is missing or empty.")
	}
	for i := range b.Messages {
		if err := all.add(i, &b.Messages[i]); err != nil {
			return err
		}
	}
	c.Messages = all.messages()
	// As in Anthropic's interface, the answer continues the text of a last message of the assistant.
	last := &c.Messages[len(c.Messages)-1]
	c.Continue = last.Role == "assistant" && len(last.ToolCalls) == 0
	if c.Continue && last.Content == "" {
		return openai.Invalid("messages", "The last message is the assistant's and has no text that the answer could continue.")
	}
	return nil
}

func (b *body) readTools(c *openai.Chat) error {
	for i, text := range b.Tools {
		var t struct {
			Type, Name, Description string
			InputSchema             json.RawMessage `json:"input_schema"`
			Strict                  bool
		}
		if json.Unmarshal(text, &t) != nil {
			return openai.Invalid("tools", "Tool %d is not an object with a name and an input_schema.", i)
		}
		if t.Type != "" && t.Type != "custom" {
			return openai.Invalid("tools", "Tool %d has the type %q, which is not supported by this server; tools with an "+
				"input_schema are.", i, t.Type)
		}
		_, err := openai.Object("tools", "A tool", text, "type", "name", "description", "input_schema", "strict", "cache_control",
			"eager_input_streaming", "allowed_callers")
		if err != nil {
			return err
		}
		if openai.IsNull(t.InputSchema) {
			return openai.Invalid("tools", "Tool %d has no input_schema.", i)
		}
		c.Tools = append(c.Tools, openai.Tool{Name: t.Name, Description: t.Description, Parameters: t.InputSchema, Strict: t.Strict})
	}
	return nil
}

func (b *body) readChoice(c *openai.Chat) error {
	if openai.IsNull(b.ToolChoice) {
		return nil
	}
	var choice struct {
		Type, Name string
		Serial     bool `json:"disable_parallel_tool_use"`
	}
	_, err := openai.Object("tool_choice", "tool_choice", b.ToolChoice, "type", "name", "disable_parallel_tool_use")
	if err != nil {
		return err
	}
	if json.Unmarshal(b.ToolChoice, &choice) != nil {
		return openai.Invalid("tool_choice", "tool_choice has a field of the wrong type.")
	}
	c.Serial = choice.Serial
	switch choice.Type {
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
		c.ToolChoice, c.Allowed, c.Serial = "required", []string{choice.Name}, true
	default:
		return openai.Invalid("tool_choice", "The type of tool_choice is %q; auto, any, tool and none are known.", choice.Type)
	}
	return nil
}

// readThinking reads whether the model shall think. A template without a variable for it decides itself.
func (b *body) readThinking(c *openai.Chat) error {
	if openai.IsNull(b.Thinking) {
		return nil
	}
	if _, err := openai.Object("thinking", "thinking", b.Thinking, "type", "budget_tokens", "display"); err != nil {
		return err
	}
	var t struct{ Type, Display string }
	if json.Unmarshal(b.Thinking, &t) != nil {
		return openai.Invalid("thinking", "thinking has a field of the wrong type.")
	}
	c.Omit = t.Display == "omitted"
	switch {
	case t.Type == "enabled", t.Type == "disabled":
		think := t.Type == "enabled"
		c.Think = &think
	case t.Type != "adaptive":
		return openai.Invalid("thinking", "The type of thinking is %q; enabled, disabled and adaptive are known.", t.Type)
	}
	return nil
}

func (b *body) readOutput(c *openai.Chat) error {
	if openai.IsNull(b.OutputConfig) {
		return nil
	}
	fields, err := openai.Object("output_config", "output_config", b.OutputConfig, "effort", "format")
	if err != nil {
		return err
	}
	c.EffortField = "output_config.effort"
	if effort := fields["effort"]; !openai.IsNull(effort) && json.Unmarshal(effort, &c.Effort) != nil {
		return openai.Invalid("output_config.effort", "output_config.effort is not a string.")
	}
	format := fields["format"]
	if openai.IsNull(format) {
		return nil
	}
	inside, err := openai.Object("output_config.format", "output_config.format", format, "type", "schema")
	if err != nil {
		return err
	}
	if kind := string(inside["type"]); kind != `"json_schema"` || openai.IsNull(inside["schema"]) {
		return openai.Invalid("output_config.format", "output_config.format is not of the type json_schema with a schema.")
	}
	c.Form, c.FormField = &structured.Form{JSONSchema: inside["schema"]}, "output_config.format"
	return nil
}
