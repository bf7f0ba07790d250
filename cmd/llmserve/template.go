package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/model/pyjson"
)

// folderTemplate reads the chat template of a folder, from chat_template.jinja, tokenizer_config.json or, as processors
// of transformers keep it, chat_template.json.
func folderTemplate(dir string) (string, error) {
	if data, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja")); err == nil {
		return string(data), nil
	}
	for _, name := range []string{"tokenizer_config.json", "chat_template.json"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		var fields struct {
			Template json.RawMessage `json:"chat_template"`
		}
		if err := pyjson.Unmarshal(data, &fields); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if source := configTemplate(fields.Template); source != "" {
			return source, nil
		}
	}
	return "", nil
}

// readTemplate sets the template: the template of --chat-template, or else the model's. If the model's template cannot
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

// configTemplate returns the template in a file of JSON. The parameter raw is the text of the template, or a
// list of named templates. If raw is a list, configTemplate returns the template with the name "default". If there is
// no such template, it returns "".
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
