package responses

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model/chat"
)

// An item is one element of the input, such as a message or a function_call. Its type decides which fields it
// has.
type item struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	Summary   json.RawMessage `json:"summary"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
	Namespace string          `json:"namespace"`
	Input     string          `json:"input"`
}

// itemFields lists the fields of each supported type of items, besides type, id and status.
var itemFields = map[string][]string{
	"message":              {"role", "content", "phase"},
	"function_call":        {"call_id", "name", "arguments", "caller", "namespace"},
	"function_call_output": {"call_id", "output", "caller", "name", "namespace"},

	"custom_tool_call":        {"call_id", "name", "input", "caller", "namespace"},
	"custom_tool_call_output": {"call_id", "output", "caller", "name", "namespace"},

	"reasoning": {"summary", "content", "duration", "started_at"}, // with the times of open-webui
}

// inputItems returns the items of the input, which is a list of items or a string. A string is the text of a user.
func (b *body) inputItems() (list []json.RawMessage, err error) {
	if openai.IsNull(b.Input) {
		return nil, openai.Invalid("input", "input is missing.")
	}
	if bytes.HasPrefix(bytes.TrimSpace(b.Input), []byte(`"`)) {
		return []json.RawMessage{slices.Concat([]byte(`{"role": "user", "content": `), b.Input, []byte("}"))}, nil
	}
	if json.Unmarshal(b.Input, &list) != nil || len(list) == 0 {
		return nil, openai.Invalid("input", "input is neither a string nor a list of items, or it is empty.")
	}
	return list, nil
}

// readInput adds the messages of the response before and those of the input, which recall has set.
func (b *body) readInput(c *openai.Chat) error {
	for i, raw := range slices.Concat(b.earlier, b.given) {
		name := fmt.Sprintf("Item %d of input", i-len(b.earlier))
		if i < len(b.earlier) {
			name = fmt.Sprintf("Item %d before the input", i)
		}
		var it item
		if err := openai.Read("input", name, raw, &it); err != nil {
			return err
		}
		if it.Type == "" && it.Role != "" {
			it.Type = "message"
		}
		fields, known := itemFields[it.Type]
		switch {
		case it.Type == "":
			return openai.Invalid("input", "%s has neither a type nor a role.", name)
		case !known:
			return openai.Invalid("input", "%s has the type %q, which is not supported by this server; message, reasoning, function_call, "+
				"function_call_output, custom_tool_call and custom_tool_call_output are.", name, it.Type)
		}
		if _, err := openai.Object("input", name, raw, append([]string{"type", "id", "status"}, fields...)...); err != nil {
			return err
		}
		if err := it.translate(name, c); err != nil {
			return err
		}
	}
	return nil
}

// translate adds an item to a chat. Reasoning, a text and calls of the assistant that follow each other in this order
// become one message.
func (it *item) translate(name string, c *openai.Chat) (err error) {
	if it.Type != "message" && it.Type != "reasoning" && it.CallID == "" {
		return openai.Invalid("input", "%s has no call_id.", name)
	}
	switch it.Type {
	case "message":
		return it.translateMessage(name, c)
	case "reasoning":
		text, err := readTexts(c, name, it.Content, "reasoning_text")
		if err == nil && text == "" {
			text, err = readTexts(c, name, it.Summary, "summary_text")
		}
		if err != nil {
			return err
		}
		assistant(c, func(m *chat.Message) bool { return m.Reasoning+m.Content == "" && len(m.ToolCalls) == 0 }).Reasoning = text
	case "function_call", "custom_tool_call":
		if it.Type == "custom_tool_call" {
			arguments, err := json.Marshal(map[string]string{customInput: it.Input})
			if err != nil {
				return err
			}
			it.Arguments = string(arguments)
		}
		call, err := openai.ToolCall(it.CallID, fullName(it.Namespace, it.Name), it.Arguments)
		if err != nil {
			return openai.Invalid("input", "%s %v.", name, err)
		}
		m := assistant(c, func(*chat.Message) bool { return true })
		m.ToolCalls = append(m.ToolCalls, call)
	case "function_call_output", "custom_tool_call_output":
		text, err := readTexts(c, name, it.Output, "input_text", "output_text")
		if err != nil {
			return err
		}
		c.Messages = append(c.Messages, chat.Message{Role: "tool", ToolCallID: it.CallID, Content: text})
	}
	return nil
}

func (it *item) translateMessage(name string, c *openai.Chat) error {
	if !slices.Contains([]string{"user", "assistant", "system", "developer"}, it.Role) {
		return openai.Invalid("input", "%s has the role %q; user, assistant, system and developer are known.", name, it.Role)
	}
	if openai.IsNull(it.Content) {
		return openai.Invalid("input", "%s has no content.", name)
	}
	text, err := readTexts(c, name, it.Content, "input_text", "output_text", "text")
	if err != nil {
		return err
	}
	if it.Role == "assistant" {
		assistant(c, func(m *chat.Message) bool { return m.Content == "" && len(m.ToolCalls) == 0 }).Content = text
		return nil
	}
	c.Messages = append(c.Messages, chat.Message{Role: it.Role, Content: text})
	return nil
}

// assistant returns the last message of the chat if it is a message of the assistant and canContinue returns true for
// it. Otherwise assistant appends an empty message of the assistant to the chat, and returns that message.
func assistant(c *openai.Chat, canContinue func(*chat.Message) bool) *chat.Message {
	if n := len(c.Messages); n == 0 || c.Messages[n-1].Role != "assistant" || !canContinue(&c.Messages[n-1]) {
		c.Messages = append(c.Messages, chat.Message{Role: "assistant"})
	}
	return &c.Messages[len(c.Messages)-1]
}

// readTexts returns the text of a content, which is a string or a list of parts of the given types. Where an input_text is
// possible, so is an image.
func readTexts(c *openai.Chat, name string, content json.RawMessage, types ...string) (string, error) {
	parts := openai.Parts{Field: "input", Texts: types, Extra: []string{"annotations", "logprobs"}}
	if slices.Contains(types, "input_text") {
		parts.Images = []string{"input_image"}
	}
	return parts.Text(c, strings.ToLower(name[:1])+name[1:], content)
}
