// Package chat turns the messages of a chat into a prompt by the model's own
// template, which is written in Jinja.
//
// A template comes with a model and is not trusted with more than that: it can
// read no files. What it makes of special tokens is the tokenizer's business.
package chat

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/loaders"
)

// ErrTemplate is wrapped when a template cannot be read, or refuses messages.
var ErrTemplate = errors.New("chat template")

// ErrKwargs is wrapped when a variable has the name of one that Render or New sets.
var ErrKwargs = errors.New("chat_template_kwargs")

// A Message is one message of a chat.
type Message struct{ Role, Content, Name string }

// A Template makes prompts. It is safe for concurrent use.
type Template struct {
	template *exec.Template
	tokens   map[string]string // bos_token, eos_token and so on
}

// New reads a template. tokens are the names of special tokens as the template
// uses them.
func New(source string, tokens map[string]string) (*Template, error) {
	c := config.New()
	c.TrimBlocks, c.LeftStripBlocks = true, true // as in Hugging Face's library
	t, err := exec.NewTemplate(name, c, only(source), &exec.Environment{
		Context:           exec.EmptyContext().Update(builtins.GlobalFunctions).Update(builtins.GlobalVariables),
		Filters:           builtins.Filters,
		Tests:             builtins.Tests,
		ControlStructures: builtins.ControlStructures,
		Methods:           builtins.Methods,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return &Template{t, tokens}, nil
}

// Render makes the prompt of messages. With answer it ends where the answer of the
// assistant begins. kwargs are further variables of the template (vLLM's chat_template_kwargs).
func (t *Template) Render(messages []Message, answer bool, kwargs map[string]any) (prompt string, err error) {
	defer func() {
		// The library panics over some templates that ask for what is not there.
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrTemplate, p)
		}
	}()
	list := make([]map[string]string, len(messages))
	for i, m := range messages {
		list[i] = map[string]string{"role": m.Role, "content": m.Content}
		if m.Name != "" {
			list[i]["name"] = m.Name
		}
	}
	var refusal error
	context := exec.NewContext(map[string]any{
		"messages": list, "add_generation_prompt": answer,
		"raise_exception": func(message string) (string, error) {
			refusal = fmt.Errorf("%w: %s", ErrTemplate, message)
			return "", refusal
		},
		// as in Hugging Face's library
		"strftime_now": func(format string) (string, error) { return strftime(time.Now(), format) },
	})
	for name, token := range t.tokens {
		context.Set(name, token)
	}
	for name, value := range kwargs {
		if context.Has(name) {
			return "", fmt.Errorf("%w: %q is set by the server; leave it out", ErrKwargs, name)
		}
		context.Set(name, value)
	}
	prompt, err = t.template.ExecuteToString(context)
	switch {
	case refusal != nil:
		return "", refusal
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	return prompt, nil
}

const name = "chat template"

// only is a loader of one template, which cannot load others.
type only string

func (o only) Read(path string) (io.Reader, error) {
	if path != name {
		return nil, fmt.Errorf("it must not load %q", path)
	}
	return strings.NewReader(string(o)), nil
}

func (o only) Resolve(path string) (string, error) {
	if path != name {
		return "", fmt.Errorf("it must not load %q", path)
	}
	return path, nil
}

func (o only) Inherit(string) (loaders.Loader, error) { return o, nil }
