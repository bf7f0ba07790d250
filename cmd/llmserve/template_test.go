package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that if a model has several named templates, the server uses the one with the name "default". This is the
// template that transformers and vLLM use for chats without tools. A file chat_template.jinja must take precedence
// over the templates in tokenizer_config.json.
func TestTheTemplateOfAFolderIsFound(t *testing.T) {
	tests := []struct {
		name   string
		config string // tokenizer_config.json; "": none
		other  string // chat_template.json; "": none
		jinja  string // chat_template.jinja; "": none
		want   string
	}{
		{"none", `{"bos_token": "<s>"}`, "", "", ""},
		{"a text", `{"chat_template": "A", "model_max_length": Infinity}`, "", "", "A"},
		{"several by name", `{"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}`, "", "", "D"},
		{"several without a default", `{"chat_template": [{"name": "rag", "template": "R"}]}`, "", "", ""},
		{"a file by itself", `{"chat_template": "A"}`, `{"chat_template": "C"}`, "F", "F"},
		{"only a file", "", "", "F", "F"},
		{"a file of a processor", `{"bos_token": "<s>"}`, `{"chat_template": "C"}`, "", "C"},
		{"a file of a processor alone", "", `{"chat_template": "C"}`, "", "C"},
		{"the tokenizer's before the processor's", `{"chat_template": "A"}`, `{"chat_template": "C"}`, "", "A"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"tokenizer_config.json": test.config, "chat_template.json": test.other, "chat_template.jinja": test.jinja} {
				if text != "" {
					require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
				}
			}
			source, err := folderTemplate(dir)
			require.NoError(t, err)
			require.Equal(t, test.want, source)
		})
	}
}

// Ensure that a model's template that cannot be used is no error, and that such a --chat-template is one.
func TestATemplateThatCannotBeUsedCostsChatOnly(t *testing.T) {
	l := &loaded{}
	require.NoError(t, l.readTemplate("{% what %}", nil, &modelOptions{}))
	require.Nil(t, l.template)
	require.Error(t, l.templateError)
	file := filepath.Join(t.TempDir(), "template.jinja")
	require.NoError(t, os.WriteFile(file, []byte("{% what %}"), 0o600))
	require.ErrorContains(t, (&loaded{}).readTemplate("", nil, &modelOptions{template: file}), "--chat-template: ")
	require.ErrorContains(t, (&loaded{}).readTemplate("", nil, &modelOptions{template: file + "x"}), "no such file")
	require.NoError(t, os.WriteFile(file, []byte("{{ messages[0].content }}!"), 0o600))
	s := serveDemo(t, "--chat-template", file)
	require.Contains(t, text(t, s.post(t, "/chat/completions", `{"model": "demo", "messages": [{"role": "user", "content": "abc abc"}],
		"max_tokens": 1}`)), `"prompt_tokens":8,`)
}
