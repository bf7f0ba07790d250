package responses

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/serving/engine/openai"
)

// A clientTool says what a function that the model may call is to the client: a function or a custom tool, which may be
// in a namespace.
type clientTool struct {
	name, namespace string
	custom          bool
}

// hosted are the beginnings of the types of tools that OpenAI's servers or special clients run. A request with such
// tools is answered without them, because clients such as Codex send them to every server.
var hosted = []string{"web_search", "file_search", "computer", "mcp", "code_interpreter", "image_generation", "local_shell", "shell",
	"apply_patch", "tool_search", "programmatic_tool_calling"}

// hostedBegin returns the element of hosted with which a type begins, or "".
func hostedBegin(kind string) string {
	if i := slices.IndexFunc(hosted, func(begin string) bool { return strings.HasPrefix(kind, begin) }); i >= 0 {
		return hosted[i]
	}
	return ""
}

func isHosted(kind string) bool { return hostedBegin(kind) != "" }

// fullName returns the name by which the model calls a tool of a namespace, as MCP's clients write it.
func fullName(namespace, name string) string {
	if namespace == "" || strings.HasSuffix(namespace, "__") {
		return namespace + name
	}
	return namespace + "__" + name
}

// readTools adds the tools. It sets b.clientTools and adds a warning if it leaves tools out.
func (b *body) readTools(c *openai.Chat) error {
	b.clientTools, b.larkLeft = map[string]clientTool{}, maxLarkBytes
	var left []string
	for i, text := range b.Tools {
		kind, err := b.readTool(c, fmt.Sprintf("Tool %d", i), "", text)
		if err != nil {
			return err
		}
		if begin := hostedBegin(kind); begin != "" && !slices.Contains(left, begin) {
			left = append(left, begin)
		}
	}
	if left != nil {
		b.warn("Tools that this server cannot run are left out: %s.", strings.Join(left, ", "))
	}
	c.Warnings = b.warnings
	return nil
}

func (b *body) warn(format string, args ...any) {
	b.warnings = append(b.warnings, fmt.Sprintf(format, args...))
}

// readTool adds a tool, or the tools of a namespace, and returns its type. It adds no hosted tool.
func (b *body) readTool(c *openai.Chat, name, namespace string, text json.RawMessage) (kind string, err error) {
	var t struct {
		Type string `json:"type"`
	}
	if err := openai.Read("tools", name, text, &t); err != nil {
		return "", err
	}
	switch {
	case t.Type == "function":
		return t.Type, b.readFunction(c, name, namespace, text)
	case t.Type == "custom":
		return t.Type, b.readCustom(c, name, namespace, text)
	case t.Type == "namespace" && namespace == "":
		return t.Type, b.readNamespace(c, name, text)
	case isHosted(t.Type) && namespace == "":
		return t.Type, nil
	case t.Type == "":
		return "", openai.Invalid("tools", "%s has no type; function, custom and namespace are supported.", name)
	}
	return "", openai.Invalid("tools", "%s has the type %q; function, custom and namespace are supported.", name, t.Type)
}

func (b *body) readNamespace(c *openai.Chat, name string, text json.RawMessage) error {
	var n struct {
		Type        string            `json:"type"`
		Name        string            `json:"name"`
		Description string            `json:"description"`
		Tools       []json.RawMessage `json:"tools"`
	}
	if err := openai.ReadObject("tools", name, text, &n); err != nil {
		return err
	}
	if n.Name == "" {
		return openai.Invalid("tools", "%s has no name.", name)
	}
	for i, part := range n.Tools {
		if _, err := b.readTool(c, fmt.Sprintf("%s, part %d,", name, i), n.Name, part); err != nil {
			return err
		}
	}
	return nil
}

func (b *body) readFunction(c *openai.Chat, name, namespace string, text json.RawMessage) error {
	// defer_loading is for tool_search, without which each tool is shown at once.
	t, err := openai.ReadTool(name, text, "parameters", "type", "allowed_callers", "defer_loading", "output_schema")
	switch {
	case err != nil:
		return err
	case t.Name == "":
		return openai.Invalid("tools", "%s has no name.", name)
	}
	b.add(c, clientTool{t.Name, namespace, false}, t)
	return nil
}

// customInput is the parameter that has the input of a custom tool.
const customInput = "input"

// readCustom adds a custom tool, whose input is a text. The model calls it as a function with this text as its only
// argument. If the tool has a grammar, the text fits it where a regular expression can say so.
func (b *body) readCustom(c *openai.Chat, name, namespace string, text json.RawMessage) error {
	var t struct {
		Type        string          `json:"type"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Format      json.RawMessage `json:"format"`
	}
	if err := openai.ReadObject("tools", name, text, &t, "allowed_callers", "defer_loading"); err != nil {
		return err
	}
	if t.Name == "" {
		return openai.Invalid("tools", "%s has no name.", name)
	}
	input := map[string]any{"type": "string"}
	if !openai.IsNull(t.Format) {
		var f struct {
			Type       string `json:"type"`
			Syntax     string `json:"syntax"`
			Definition string `json:"definition"`
		}
		if err := openai.ReadObject("tools", "The format of "+strings.ToLower(name[:1])+name[1:], t.Format, &f); err != nil {
			return err
		}
		switch {
		case f.Type == "text":
		case f.Type != "grammar" || f.Syntax != "lark" && f.Syntax != "regex":
			return openai.Invalid("tools", "%s has a format that is neither text nor a grammar with the syntax lark or regex.", name)
		default:
			t.Description += "\n\nThe input has this form (" + f.Syntax + "):\n" + f.Definition
			pattern, err := f.Definition, error(nil)
			if f.Syntax == "lark" {
				pattern, err = larkPattern(f.Definition, &b.larkLeft)
			}
			if err != nil {
				b.warn("The input of the tool %q may not fit its grammar, which is not obeyed: %v.", t.Name, err)
			} else {
				input["pattern"] = "^(?:" + pattern + ")$"
			}
		}
	}
	schema, err := json.Marshal(map[string]any{"type": "object", "properties": map[string]any{customInput: input},
		"required": []string{customInput}, "additionalProperties": false})
	if err != nil {
		return err
	}
	b.add(c, clientTool{t.Name, namespace, true}, openai.Tool{Description: t.Description, Parameters: schema})
	return nil
}

func (b *body) add(c *openai.Chat, client clientTool, t openai.Tool) {
	t.Name = fullName(client.namespace, client.name)
	b.clientTools[t.Name] = client
	c.Tools = append(c.Tools, t)
}

// inputOf returns the input of a call of a custom tool, whose arguments may be cut.
func inputOf(arguments string) string {
	for cut := 0; cut <= 6 && cut <= len(arguments); cut++ { // 6 is the length of an escape
		for _, end := range []string{"", "}", `"}`} {
			var a map[string]any
			if json.Unmarshal([]byte(arguments[:len(arguments)-cut]+end), &a) == nil {
				if text, ok := a[customInput].(string); ok {
					return text
				}
			}
		}
	}
	return arguments
}

// A namedTool is a tool in tool_choice.
type namedTool struct{ Type, Name, Namespace string }

// check returns an error for a tool that cannot be called.
func (t *namedTool) check() error {
	switch {
	case isHosted(t.Type):
		return openai.Invalid("tool_choice", "tool_choice names a tool of the type %q, which this server cannot run.", t.Type)
	case t.Type == "":
		return openai.Invalid("tool_choice", "tool_choice has a tool without a type; function and custom are supported.")
	case t.Type != "function" && t.Type != "custom":
		return openai.Invalid("tool_choice", "tool_choice has a tool of the type %q; function and custom are supported.", t.Type)
	}
	return nil
}

func (b *body) readChoice(c *openai.Chat) error {
	if openai.IsNull(b.ToolChoice) || json.Unmarshal(b.ToolChoice, &c.ToolChoice) == nil &&
		slices.Contains([]string{"none", "auto", "required"}, c.ToolChoice) {
		return nil
	}
	var choice struct {
		namedTool
		Mode  string
		Tools []namedTool
	}
	err := json.Unmarshal(b.ToolChoice, &choice)
	switch {
	case err == nil && choice.Type == "allowed_tools":
		c.ToolChoice, c.Allowed = choice.Mode, []string{}
		for _, t := range choice.Tools {
			if err := t.check(); err != nil {
				return err
			}
			c.Allowed = append(c.Allowed, fullName(t.Namespace, t.Name))
		}
		return nil
	case err == nil && (choice.Name != "" || isHosted(choice.Type)) && choice.check() == nil:
		c.ToolChoice, c.Allowed, c.OneCall = "required", []string{fullName(choice.Namespace, choice.Name)}, true
		return nil
	case err == nil && isHosted(choice.Type):
		return choice.check()
	}
	return openai.Invalid("tool_choice", `tool_choice must be none, auto, required, {"type": "function", "name": ...}, `+
		`{"type": "custom", "name": ...} or {"type": "allowed_tools", "mode": ..., "tools": [...]}.`)
}
