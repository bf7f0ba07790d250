// Package chat renders the messages of a chat to a prompt. It uses the model's own template, which is written in Jinja.
//
// A template comes with a model but is not trusted: it cannot read files, and its work is limited. The tokenizer
// decides which special tokens the prompt contains.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"llmmemory/internal/serving/model/chat/jinja"
	"llmmemory/internal/serving/model/marks"
)

// ErrTemplate is wrapped when a template cannot be read, or when it refuses messages.
var ErrTemplate = errors.New("chat template")

// ErrKwargs is wrapped if Options.Kwargs has a variable that this package sets itself, such as messages or
// bos_token.
var ErrKwargs = errors.New("chat_template_kwargs")

// A Message is one message of a chat. The template gets the fields after Content only if they are not empty.
type Message struct {
	Role, Content string
	Name          string
	ToolCallID    string // the call that the message answers
	Reasoning     string // of an assistant; the template also finds it as reasoning_content, as in vLLM
	ToolCalls     []any  // of an assistant; results of ToolCall
}

var errNoObject = errors.New("has arguments that are neither an object nor an object in a string")

// ToolCall decodes a tool call in OpenAI's form, whose arguments are a string with JSON. As in vLLM, the result has
// the decoded arguments, and an empty object if they are missing. Arguments that are not JSON but begin like an
// object remain a string, because some templates accept it. A call that was cut off at a token limit has such
// arguments.
func ToolCall(text []byte) (any, error) {
	call, function := named(text)
	if function == nil {
		return nil, errors.New("has no function with a name")
	}
	switch arguments := function.Get("arguments").(type) {
	case *jinja.Dict:
	case nil:
		function.Set("arguments", "{}")
	case string:
		text := strings.TrimSpace(arguments)
		if text == "" || text == "null" {
			function.Set("arguments", "{}")
		} else if text[0] != '{' {
			return nil, errNoObject
		}
	default:
		return nil, errNoObject
	}
	if s, ok := function.Get("arguments").(string); ok && json.Valid([]byte(s)) {
		value, err := jinja.FromJSON([]byte(s))
		if err != nil {
			return nil, fmt.Errorf("has arguments that cannot be read: %w", err)
		}
		function.Set("arguments", value)
	}
	return call, nil
}

// IsText reports whether the arguments of a tool call are a string. The tool call must be a result of ToolCall.
func IsText(call any) bool {
	_, ok := call.(*jinja.Dict).Get("function").(*jinja.Dict).Get("arguments").(string)
	return ok
}

// CallID returns the id in a result of ToolCall, or "".
func CallID(call any) string {
	id, _ := call.(*jinja.Dict).Get("id").(string)
	return id
}

// Tool decodes a tool in OpenAI's form. ok is false if the tool has no function with a name. Many templates list the
// properties of the parameters. So a function without parameters gets those of an object without properties, and
// parameters of the type object get empty properties if they have none.
func Tool(text []byte) (tool any, ok bool) {
	tool, function := named(text)
	if function == nil {
		return tool, false
	}
	empty, err := jinja.FromJSON([]byte(`{"type": "object", "properties": {}}`))
	if err != nil {
		return nil, false
	}
	properties := empty.(*jinja.Dict).Get("properties")
	switch parameters, isObject := function.Get("parameters").(*jinja.Dict); {
	case function.Get("parameters") == nil, isObject && parameters.Len() == 0:
		function.Set("parameters", empty)
	case isObject && parameters.Get("type") == "object" && parameters.Get("properties") == nil:
		parameters.Set("properties", properties)
	}
	return tool, true
}

// named decodes an object with a named function, such as a tool or a call. It also returns the function. function is
// nil if the object has none.
func named(text []byte) (object any, function *jinja.Dict) {
	object, _ = jinja.FromJSON(text)
	fields, ok := object.(*jinja.Dict)
	if !ok {
		return nil, nil
	}
	function, _ = fields.Get("function").(*jinja.Dict)
	if function == nil {
		return nil, nil
	}
	if _, ok := function.Get("name").(string); !ok {
		return nil, nil
	}
	return object, function
}

// A Template renders prompts. It is safe for concurrent use.
type Template struct {
	source   string
	template *jinja.Template
	tokens   map[string]string // bos_token, eos_token and so on
	capable  capabilities
}

// New parses a template, and renders short chats to find out which messages it shows. tokens maps names of variables,
// such as bos_token, to the texts of special tokens.
func New(source string, tokens map[string]string) (*Template, error) {
	t, err := jinja.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	made := &Template{source: source, template: t, tokens: tokens}
	made.capable = made.probe()
	return made, nil
}

// Mentions reports whether the template's source contains name.
func (t *Template) Mentions(name string) bool { return strings.Contains(t.source, name) }

// Source returns the template as it was given to New.
func (t *Template) Source() string { return t.source }

// Options are options of RenderTo.
type Options struct {
	Answer bool           // the prompt ends where the assistant's answer begins
	Kwargs map[string]any // additional variables for the template (vLLM's chat_template_kwargs)

	// Marked lists characters to replace by marks in texts of messages and Kwargs. Roles are not marked, because
	// templates make special tokens from them.
	Marked []rune
}

// RenderTo passes the prompt to write piece by piece. If write returns an error or ctx ends, RenderTo stops and returns
// that error, wrapped. RenderTo also returns the marks in the prompt, or nil if it marked no characters. It first changes
// messages that the template would refuse or leave out (see adapted).
func (t *Template) RenderTo(
	ctx context.Context, write func(piece string, m *marks.Marks) error, messages []Message, o Options,
) (*marks.Marks, error) {
	return t.render(ctx, write, t.adapted(messages), o)
}

// render is like RenderTo, but does not change the messages.
func (t *Template) render(
	ctx context.Context, write func(piece string, m *marks.Marks) error, messages []Message, o Options,
) (*marks.Marks, error) {
	messages, kwargs, m, err := t.marked(messages, o)
	if err != nil {
		return nil, err
	}
	list := make([]any, len(messages))
	for i := range messages {
		list[i] = messages[i].variables()
	}
	var refusal error
	variables := map[string]any{
		"messages": list, "add_generation_prompt": o.Answer,
		"raise_exception": jinja.Function(func(message []any) (any, error) {
			refusal = fmt.Errorf("%w: %s", ErrTemplate, m.Plain(fmt.Sprint(message...)))
			return nil, refusal
		}),
		"strftime_now": jinja.Function(func(format []any) (any, error) {
			return strftime(time.Now(), fmt.Sprint(format...))
		}),
	}
	for name, token := range t.tokens {
		variables[name] = token
	}
	for name, value := range kwargs {
		if _, set := variables[name]; set {
			return nil, fmt.Errorf("%w: %q is set by the server; leave it out", ErrKwargs, name)
		}
		variables[name] = value
	}
	for _, name := range []string{"tools", "documents"} { // None, as in Hugging Face's library
		if _, set := variables[name]; !set {
			variables[name] = nil
		}
	}
	err = t.template.RenderTo(jinja.NewMeter(ctx), func(piece string) error { return write(piece, m) }, variables, m)
	switch {
	case refusal != nil:
		return nil, refusal
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return m, nil
}
