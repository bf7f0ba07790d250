package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"llmmemory/internal/model/chat"
)

// folderTemplate reads chat_template.jinja, or tokenizer_config.json, which also
// names special tokens.
func folderTemplate(dir string) (source string, tokens map[string]string, err error) {
	tokens = map[string]string{}
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer_config.json"))
	if err == nil {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(data, &fields); err != nil {
			return "", nil, fmt.Errorf("tokenizer_config.json: %w", err)
		}
		for _, name := range []string{"bos_token", "eos_token", "unk_token", "pad_token"} {
			var text string
			var object struct {
				Content string `json:"content"`
			}
			if json.Unmarshal(fields[name], &text) != nil && json.Unmarshal(fields[name], &object) == nil {
				text = object.Content
			}
			if text != "" {
				tokens[name] = text
			}
		}
		source = configTemplate(fields["chat_template"])
	} else if !errors.Is(err, os.ErrNotExist) {
		return "", nil, err
	}
	if data, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja")); err == nil {
		source = string(data)
	}
	return source, tokens, nil
}

// readTemplate reads the template of a model, or the one that is to be used in its place. If the model's own cannot
// be used, the model can still complete texts.
func (l *loaded) readTemplate(source string, tokens map[string]string, o *modelOptions) error {
	if o.template != "" {
		text, err := os.ReadFile(o.template)
		if err == nil {
			l.template, err = chat.New(string(text), tokens)
		}
		if err != nil {
			return fmt.Errorf("--chat-template: %w", err)
		}
		return nil
	}
	if source != "" {
		l.template, l.templateError = chat.New(source, tokens)
	}
	return nil
}

// configTemplate is the template in tokenizer_config.json: a text, or a list of named ones, of which "default" is for a
// chat without tools.
func configTemplate(raw json.RawMessage) (source string) {
	if json.Unmarshal(raw, &source) == nil {
		return source
	}
	var named []struct{ Name, Template string }
	if json.Unmarshal(raw, &named) == nil {
		for _, t := range named {
			if t.Name == "default" {
				return t.Template
			}
		}
	}
	return ""
}
