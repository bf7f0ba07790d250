package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model/chat"
)

func TestParsersAreChosenByTheTemplateOrByName(t *testing.T) {
	for _, test := range []struct {
		name, template   string
		tools, reasoning string // the flags
		want, fails      string
	}{
		{"Qwen3", "{% if tools %}<tool_call> arguments <think></think>{% endif %}", "auto", "auto",
			"tool calls: hermes, by the chat template; reasoning: qwen3, by the chat template", ""},
		{"Llama 3.2", `{{ tools }}<|start_header_id|> {"name": ..., "parameters": ...}`, "auto", "auto",
			"tool calls: llama3_json, by the chat template; reasoning: none, by the chat template", ""},
		{"no known marker", "{{ tools }}", "auto", "auto", "tool calls: json, by the chat template; reasoning: none, by the chat template", ""},
		{"no tools", "<think>", "auto", "auto",
			"tool calls: json, by the chat template; reasoning: qwen3, by the chat template; the chat template does not show tools to the model", ""},
		{"by name", "{{ tools }}<think>", "mistral", "deepseek_r1", "tool calls: mistral; reasoning: deepseek_r1", ""},
		{"none", "{{ tools }}<think><tool_call>arguments", "none", "none", "tool calls: none; reasoning: none", ""},
		{"gpt-oss", "{{ tools }}<|channel|><|message|>", "auto", "auto",
			"tool calls: openai, by the chat template; reasoning: openai_gptoss, by the chat template", ""},
		{"unknown tools", "", "x", "auto", "", `--tool-call-parser: the tool parser "x" is not known; there are deepseek_v3, `},
		{"unknown reasoning", "", "auto", "x", "", `--reasoning-parser: the reasoning parser "x" is not known; there are deepseek_r1, `},
		{"half of harmony", "", "openai", "qwen3", "", "openai and openai_gptoss belong together"},
	} {
		t.Run(test.name, func(t *testing.T) {
			template, err := chat.New(test.template, nil)
			require.NoError(t, err)
			o := parserOptions{test.tools, test.reasoning}
			f, err := o.format(template)
			if test.fails != "" {
				require.ErrorContains(t, err, test.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, o.describe(f, template))
		})
	}
}
