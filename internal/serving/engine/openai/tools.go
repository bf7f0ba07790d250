package openai

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/toolparser"
)

// Limits of the tools of a request. Each tool is part of the prompt, and of the constraint of an answer.
const (
	maxTools     = 128     // OpenAI's
	maxToolName  = 128     // bytes
	maxToolBytes = 1 << 20 // of all tools together
)

// A tool is a function that the model may call.
type tool struct {
	name       string
	definition any             // for the chat template, in OpenAI's form
	parameters json.RawMessage // a JSON Schema of objects
	strict     bool            // arguments fit the schema even if the model chooses to call
}

// A toolChoice says whether the model may or must call a tool, and which ones.
type toolChoice struct {
	mode  choiceMode
	names []string // the tools that may be called; nil means all
}

type choiceMode uint8

const (
	none choiceMode = iota
	auto
	required
)

// readTools reads tools in OpenAI's form.
func readTools(texts []json.RawMessage) (tools []tool, err error) {
	if len(texts) > maxTools {
		return nil, invalid("tools", "There are %d tools; at most %d are possible.", len(texts), maxTools)
	}
	bytes := 0
	for i, text := range texts {
		if bytes += len(text); bytes > maxToolBytes {
			return nil, invalid("tools", "The tools have more than %d bytes together.", maxToolBytes)
		}
		t, err := readTool(i, text)
		switch {
		case err != nil:
			return nil, err
		case slices.ContainsFunc(tools, func(other tool) bool { return other.name == t.name }):
			return nil, invalid("tools", "Two tools have the name %q.", t.name)
		}
		tools = append(tools, t)
	}
	return tools, nil
}

func readTool(i int, text json.RawMessage) (t tool, err error) {
	var fields struct {
		Type     string          `json:"type"`
		Function json.RawMessage `json:"function"`
	}
	var function Tool
	name := fmt.Sprintf("Tool %d", i)
	_, unknown, err := readPart("tools", name, text, &fields, toolFields)
	if err != nil {
		return t, err
	}
	if fields.Type != "" && fields.Type != "function" {
		return t, invalid("tools", "Tool %d has the type %q, which is not supported; function is.", i, fields.Type)
	}
	if unknown != nil {
		return t, unknown
	}
	if !IsNull(fields.Function) {
		if function, err = ReadTool("The function of tool "+strconv.Itoa(i), fields.Function, "parameters", functionExtra...); err != nil {
			return t, err
		}
	}
	definition, _ := chat.Tool(text)
	t = tool{function.Name, definition, function.Parameters, function.Strict}
	switch {
	case t.name == "" || definition == nil:
		return t, invalid("tools", "Tool %d has no function with a name.", i)
	case len(t.name) > maxToolName:
		return t, invalid("tools", "The name of tool %d has %d bytes; at most %d are possible.", i, len(t.name), maxToolName)
	case !toolparser.IsName(t.name):
		return t, invalid("tools", "The name of tool %d is %q; letters, digits, _, -, ., : and / are possible.", i, t.name)
	}
	return t, t.setParameters()
}

// ReadTool reads a function that the model may call: an object whose field schema has the JSON Schema of the arguments.
// The object may also have the fields in extra, which are left out. The parameter name is what errors call the object.
func ReadTool(name string, text json.RawMessage, schema string, extra ...string) (t Tool, err error) {
	fields, unknown, err := readPart("tools", name, text, &t, append([]string{"name", "description", schema, "strict"}, extra...))
	if t.Parameters = fields[schema]; IsNull(t.Parameters) {
		t.Parameters = nil
	}
	return t, cmp.Or(err, unknown)
}

// setParameters makes t.parameters a schema of objects if it has no type, and returns an error if its type is another
// name than object. As in OpenAI's interface, a function without parameters takes no arguments.
func (t *tool) setParameters() error {
	if IsNull(t.parameters) {
		t.parameters = json.RawMessage(`{"type": "object", "additionalProperties": false}`)
		return nil
	}
	var schema map[string]json.RawMessage
	if json.Unmarshal(t.parameters, &schema) != nil {
		return invalid("tools", "The schema of the tool %q is not a JSON object.", t.name)
	}
	var kind string
	switch {
	case len(schema) == 0:
		t.parameters = json.RawMessage(`{"type": "object"}`)
	case schema["type"] != nil && IsNull(schema["type"]):
		schema["type"] = json.RawMessage(`"object"`)
		text, err := json.Marshal(schema)
		if err != nil {
			return err
		}
		t.parameters = text
	case schema["type"] == nil:
		_, rest, _ := bytes.Cut(t.parameters, []byte("{"))
		t.parameters = append([]byte(`{"type": "object", `), rest...)
	case json.Unmarshal(schema["type"], &kind) == nil && kind != "object":
		return invalid("tools", "The schema of the tool %q has the type %q; arguments are an object.", t.name, kind)
	}
	return nil
}

// readChoice reads OpenAI's tool_choice. If it names a function, the answer has one call.
func (c *Chat) readChoice(text json.RawMessage) error {
	var mode string
	if IsNull(text) || json.Unmarshal(text, &mode) == nil {
		return c.choose(mode, nil)
	}
	var given struct {
		namedTool
		Allowed struct {
			Mode  string
			Tools []namedTool
		} `json:"allowed_tools"`
	}
	err := json.Unmarshal(text, &given)
	if err == nil {
		if err := knownChoice(text); err != nil {
			return err
		}
	}
	switch {
	case err == nil && given.Type == "allowed_tools":
		names := []string{}
		for _, t := range given.Allowed.Tools {
			if t.Type != "" && t.Type != "function" {
				return invalid("tool_choice", "allowed_tools has a tool of the type %q; function is possible.", t.Type)
			}
			names = append(names, t.Function.Name)
		}
		return c.choose(given.Allowed.Mode, names)
	case err == nil && given.Type == "function" && given.Function.Name != "":
		c.OneCall = true
		return c.choose("required", []string{given.Function.Name})
	}
	return invalid("tool_choice", "tool_choice is neither a known word nor a function; %s.", knownChoices)
}

const knownChoices = `none, auto, required, {"type": "function", "function": {"name": ...}} and ` +
	`{"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}} are known`

// choose sets the mode of tool_choice and the tools that may be called: those with the given names, or all tools if
// names is nil. In that case, an empty mode means auto.
func (c *Chat) choose(mode string, names []string) error {
	index := slices.Index([]string{"none", "auto", "required"}, cmp.Or(mode, "auto"))
	switch {
	case names == nil && index < 0:
		return invalid("tool_choice", "tool_choice is %q; %s.", mode, knownChoices)
	case names != nil && mode != "auto" && mode != "required":
		return invalid("tool_choice", "The mode of allowed_tools is %q; auto and required are known.", mode)
	case names != nil && len(names) == 0:
		return invalid("tool_choice", "allowed_tools has no tools; name at least one, or use tool_choice none.")
	}
	for _, name := range names {
		if !slices.ContainsFunc(c.tools, func(t tool) bool { return t.name == name }) {
			return invalid("tool_choice", "tool_choice has the function %q, which is not in tools.", name)
		}
	}
	switch {
	case len(c.tools) > 0:
		c.choice = toolChoice{choiceMode(index), names}
	case choiceMode(index) == required:
		return invalid("tool_choice", "tool_choice is %q, but there are no tools.", mode)
	}
	return nil
}

// A namedTool is a function in tool_choice.
type namedTool struct {
	Type     string
	Function struct{ Name string }
}

// callable returns the tools that may be called.
func (c *Chat) callable() []tool {
	if c.choice.mode == none {
		return nil
	}
	if c.choice.names == nil {
		return c.tools
	}
	return slices.DeleteFunc(slices.Clone(c.tools), func(t tool) bool { return !slices.Contains(c.choice.names, t.name) })
}

// known returns a function that reports whether a tool with the given name may be called. It returns nil if
// no tool may be called.
func (c *Chat) known() func(name string) bool {
	tools := c.callable()
	if len(tools) == 0 {
		return nil
	}
	return func(name string) bool {
		return slices.ContainsFunc(tools, func(t tool) bool { return t.name == name })
	}
}

// The fields that tools and calls may have in a request. The server uses the fields in the first line of each list but
// functionExtra. It ignores the others: clients copy them from answers of other servers, or send them for other servers.
// But a chat template gets tools and calls with all their fields.
var (
	toolFields = []string{"type", "function",
		"cache_control", "eager_input_streaming"} // Anthropic's, also through routers
	functionExtra = []string{
		"cache_control", // of proxies to other servers
		"type",          // of open-webui
		"return"}        // what transformers' get_json_schema writes, for templates that show it
	functionFields = append([]string{"name", "description", "parameters", "strict"}, functionExtra...)
	callFields     = []string{"id", "type", "function",
		"index",                                                  // of a part of a stream
		"extra_content", "thought_signature", "thoughtSignature", // Gemini
		"provider_specific_fields", "cache_control"} // of proxies to other servers
	calledFields = []string{"name", "arguments",
		"index",            // Ollama
		"parsed_arguments", // OpenAI's Python client
		"provider_specific_fields", "thought_signature"}
)

// knownFields returns an error if an object has a field that is not in names. The object may have a field named
// function, with another object as its value. The fields of that object must be in the parameter function.
func knownFields(field, name string, value json.RawMessage, names, function []string) error {
	fields, err := Object(field, name, value, names...)
	if err != nil || IsNull(fields["function"]) {
		return err
	}
	_, err = Object(field, "The function of "+lowered(name), fields["function"], function...)
	return err
}

// knownChoice returns an error for a tool_choice with unknown fields.
func knownChoice(text json.RawMessage) error {
	const field = "tool_choice"
	if err := knownFields(field, field, text, []string{"type", "function", "allowed_tools"}, []string{"name"}); err != nil {
		return err
	}
	var given struct {
		Allowed json.RawMessage `json:"allowed_tools"`
	}
	if json.Unmarshal(text, &given) != nil || IsNull(given.Allowed) {
		return nil
	}
	fields, err := Object(field, "allowed_tools", given.Allowed, "mode", "tools")
	if err != nil {
		return err
	}
	var tools []json.RawMessage
	if json.Unmarshal(fields["tools"], &tools) != nil {
		return nil // readChoice reports what is wrong
	}
	for _, t := range tools {
		if err := knownFields(field, "A tool of allowed_tools", t, toolFields, functionFields); err != nil {
			return err
		}
	}
	return nil
}
