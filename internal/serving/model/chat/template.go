// Package chat turns the messages of a chat into a prompt by the model's own
// template, which is written in Jinja.
//
// A template comes with a model and is not trusted with more than that: it can
// read no files, and its work is bounded. What it makes of special tokens is the tokenizer's business.
package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"llmmemory/internal/serving/model/chat/jinja"
	"llmmemory/internal/serving/model/marks"
)

// ErrTemplate is wrapped when a template cannot be read, or refuses messages.
var ErrTemplate = errors.New("chat template")

// ErrKwargs is wrapped when a variable has the name of one that Render or New sets.
var ErrKwargs = errors.New("chat_template_kwargs")

// A Message is one message of a chat. Of the fields after Content, the template sees those that are not empty.
type Message struct {
	Role, Content string
	Name          string
	ToolCallID    string // of the call that the message answers
	Reasoning     string // of an assistant; also called reasoning_content in the template, as in vLLM
	ToolCalls     []any  // of an assistant, each read by ToolCall
}

// ToolCall reads a tool call in OpenAI's form, whose arguments are JSON in a string. As in vLLM, they become a value, and
// none an empty object. A string that is not JSON stays a string, which some templates can write.
func ToolCall(text []byte) (any, error) {
	call, function := named(text)
	if function == nil {
		return nil, errors.New("has no function with a name")
	}
	switch arguments := function.Get("arguments").(type) {
	case bool, int64, float64:
		return nil, errors.New("has arguments that are neither an object nor JSON in a string")
	case nil:
		function.Set("arguments", "{}")
	case string:
		if arguments == "" {
			function.Set("arguments", "{}")
		}
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

// IsText reports whether the arguments of a call that ToolCall has read are a string.
func IsText(call any) bool {
	_, ok := call.(*jinja.Dict).Get("function").(*jinja.Dict).Get("arguments").(string)
	return ok
}

// Tool reads a tool in OpenAI's form. ok is false if it has no function with a name.
func Tool(text []byte) (tool any, ok bool) {
	tool, function := named(text)
	return tool, function != nil
}

// named reads an object that has a function with a name; function is nil if it has none.
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

// A Template makes prompts. It is safe for concurrent use.
type Template struct {
	source   string
	template *jinja.Template
	tokens   map[string]string // bos_token, eos_token and so on
}

// New reads a template. tokens are the names of special tokens as the template
// uses them.
func New(source string, tokens map[string]string) (*Template, error) {
	t, err := jinja.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return &Template{source, t, tokens}, nil
}

// Mentions reports whether a name is in the text of the template.
func (t *Template) Mentions(name string) bool { return strings.Contains(t.source, name) }

// Render makes the prompt of messages. With answer it ends where the answer of the
// assistant begins. kwargs are further variables of the template (vLLM's chat_template_kwargs).
func (t *Template) Render(messages []Message, answer bool, kwargs map[string]any) (string, error) {
	var text strings.Builder
	_, err := t.RenderTo(func(piece string, _ *marks.Marks) error {
		text.WriteString(piece)
		return nil
	}, messages, Options{Answer: answer, Kwargs: kwargs})
	if err != nil {
		return "", err
	}
	return text.String(), nil
}

// Options are what RenderTo makes of messages.
type Options struct {
	Answer bool           // see Render
	Kwargs map[string]any // see Render

	// Marked are characters that are marked in the text if they come from messages or from Kwargs. Roles are not marked:
	// templates make special tokens of them.
	Marked []rune
}

// RenderTo is Render that gives the text to write piece by piece. It calls write also while the template works and
// writes nothing, with "". An error of write ends it, and is wrapped. It returns the marks that the text has.
func (t *Template) RenderTo(
	write func(piece string, m *marks.Marks) error, messages []Message, o Options,
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
		// as in Hugging Face's library
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
	for _, name := range []string{"tools", "documents"} { // None as in Hugging Face's library
		if _, set := variables[name]; !set {
			variables[name] = nil
		}
	}
	err = t.template.RenderMarked(func(piece string) error { return write(piece, m) }, variables, m)
	switch {
	case refusal != nil:
		return nil, refusal
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return m, nil
}
