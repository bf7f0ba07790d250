package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model/chat"
)

type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// A block is one element of the content of a message, such as a text or a tool_use. Its type decides which
// fields it has.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// blockFields lists the fields of each supported type of blocks, besides type and cache_control. citations, source,
// signature, caller and is_error have no effect.
var blockFields = map[string][]string{
	"text":        {"text", "citations"},
	"image":       {"source"},
	"thinking":    {"thinking", "signature"},
	"tool_use":    {"id", "name", "input", "caller"},
	"tool_result": {"tool_use_id", "content", "is_error"},
}

// readContent returns the blocks of the content of a message or tool result. The content is a string or a list of
// blocks. A block whose type is not in types is an error. The parameter field is the field of the body that contains
// the content, and errors refer to this field. The parameter name is what the text of an error calls the message or
// tool result, for example "message 3".
func readContent(field, name string, content json.RawMessage, types ...string) ([]block, error) {
	content = bytes.TrimSpace(content)
	if openai.IsNull(content) {
		return nil, openai.Invalid(field, "%s has no content.", name)
	}
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []block{{Type: "text", Text: text}}, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(content, &list) != nil {
		return nil, openai.Invalid(field, "The content of %s is neither a string nor a list of blocks.", name)
	}
	blocks := make([]block, len(list))
	for i, raw := range list {
		if err := blocks[i].read(field, fmt.Sprintf("Block %d of %s", i, name), raw, types); err != nil {
			return nil, err
		}
	}
	return blocks, nil
}

func (b *block) read(field, name string, raw json.RawMessage, types []string) error {
	if err := openai.Read(field, name, raw, b); err != nil {
		return err
	}
	if b.Type == "" {
		return openai.Invalid(field, "%s has no type.", name)
	}
	if !slices.Contains(types, b.Type) {
		if _, known := blockFields[b.Type]; known {
			return openai.Invalid(field, "%s has the type %s, which is not possible there.", name, b.Type)
		}
		return openai.Invalid(field, "%s has the type %q, which is not supported by this server; %s are.", name, b.Type,
			strings.Join(slices.Sorted(maps.Keys(blockFields)), ", "))
	}
	fields, err := openai.Object(field, name, raw, append([]string{"type", "cache_control"}, blockFields[b.Type]...)...)
	if b.Type == "image" {
		b.Text = openai.ImageLeftOut
	}
	if err == nil && b.Type == "text" && openai.IsNull(fields["text"]) {
		return openai.Invalid(field, "%s has no text.", name)
	}
	return err
}

// A draft is a message of a chat whose texts are not joined yet. As in Anthropic's interface, consecutive messages of
// one role become one message. Each result of a tool becomes a message of its own.
type draft struct {
	chat.Message
	texts, thoughts []string
}

type drafts []draft

// withRole returns the last draft if it has the role, or a new one.
func (d *drafts) withRole(role string) *draft {
	if n := len(*d); n == 0 || (*d)[n-1].Role != role {
		*d = append(*d, draft{Message: chat.Message{Role: role}})
	}
	return &(*d)[len(*d)-1]
}

// messages returns the drafts as messages. As in vLLM, the texts of a message are joined by line breaks.
func (d drafts) messages() (list []chat.Message) {
	for _, one := range d {
		one.Content, one.Reasoning = strings.Join(one.texts, "\n"), strings.Join(one.thoughts, "\n")
		list = append(list, one.Message)
	}
	return list
}

// add adds message i of a request. It notes the first image in c.
func (d *drafts) add(i int, m *message, c *openai.Chat) error {
	name := fmt.Sprintf("message %d", i)
	types := map[string][]string{"user": {"text", "image", "tool_result"}, "assistant": {"text", "thinking", "tool_use"}, "system": {"text"}}[m.Role]
	if types == nil {
		return openai.Invalid("messages", "Message %d has the role %q; user, assistant and system are known.", i, m.Role)
	}
	blocks, err := readContent("messages", name, m.Content, types...)
	if err != nil {
		return err
	}
	if len(blocks) == 0 {
		return openai.Invalid("messages", "Message %d has no content.", i)
	}
	noteImage(c, name, blocks)
	for _, b := range blocks {
		switch b.Type {
		case "text", "image":
			draft := d.withRole(m.Role)
			draft.texts = append(draft.texts, b.Text)
		case "thinking":
			draft := d.withRole(m.Role)
			draft.thoughts = append(draft.thoughts, b.Thinking)
		case "tool_use":
			call, err := openai.ToolCall(b.ID, b.Name, string(b.Input))
			switch {
			case !openai.IsNull(b.Input) && !bytes.HasPrefix(b.Input, []byte("{")):
				return openai.Invalid("messages", "The input of a tool_use of %s is not a JSON object.", name)
			case err != nil:
				return openai.Invalid("messages", "A tool_use of %s %v.", name, err)
			case b.ID == "":
				return openai.Invalid("messages", "A tool_use of %s has no id.", name)
			}
			draft := d.withRole(m.Role)
			draft.ToolCalls = append(draft.ToolCalls, call)
		case "tool_result":
			if err := d.addResult(name, &b, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *drafts) addResult(name string, b *block, c *openai.Chat) error {
	result := draft{Message: chat.Message{Role: "tool", ToolCallID: b.ToolUseID}}
	if b.ToolUseID == "" {
		return openai.Invalid("messages", "A tool_result of %s has no tool_use_id.", name)
	}
	if !openai.IsNull(b.Content) {
		blocks, err := readContent("messages", "a tool_result of "+name, b.Content, "text", "image")
		if err != nil {
			return err
		}
		noteImage(c, "a tool_result of "+name, blocks)
		result.texts = texts(blocks)
	}
	*d = append(*d, result)
	return nil
}

// noteImage notes in c the first image of a chat. The parameter name is what errors call the message or tool result.
func noteImage(c *openai.Chat, name string, blocks []block) {
	if i := slices.IndexFunc(blocks, func(b block) bool { return b.Type == "image" }); i >= 0 && c.Image == "" {
		c.Image = fmt.Sprintf("Block %d of %s", i, name)
	}
}

func texts(blocks []block) (list []string) {
	for _, b := range blocks {
		list = append(list, b.Text)
	}
	return list
}
