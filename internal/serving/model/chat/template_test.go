package chat_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/model/chat"
)

const (
	chatML = `{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

	headers = `{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>

'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>

' }}{% endif %}`

	inst = `{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate') }}
    {%- endif %}
    {%- if message['role'] == 'user' %}
        {%- if loop.first and system_message is defined %}
            {{- ' [INST] ' + system_message + '\n\n' + message['content'] + ' [/INST]' }}
        {%- else %}
            {{- ' [INST] ' + message['content'] + ' [/INST]' }}
        {%- endif %}
    {%- else %}
        {{- ' ' + message['content'] + eos_token}}
    {%- endif %}
{%- endfor %}`

	spaced = `{%- set ns = namespace(found=false) %}
{%- for message in messages %}
  {%- if message.role == 'user' %}
    {%- set ns.found = true %}
[{{ message.content.strip() }}]
  {%- endif %}
{%- endfor %}
{{ ns.found }} {{ date_string is defined }} {{ tools is defined and tools }}`
)

var (
	user      = chat.Message{Role: "user", Content: " Hi "}
	assistant = chat.Message{Role: "assistant", Content: "Hello"}
	system    = chat.Message{Role: "system", Content: "Be brief."}
	tokens    = map[string]string{"bos_token": "<s>", "eos_token": "</s>"}
)

func TestPromptsAreThoseOfTheTemplate(t *testing.T) {
	tests := []struct {
		name, source string
		messages     []chat.Message
		want         string
	}{
		{"ChatML", chatML, []chat.Message{user},
			"<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n"},
		{"ChatML with a system message", chatML, []chat.Message{system, user},
			"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n"},
		{"Llama 3", headers, []chat.Message{user, assistant},
			"<s><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
		{"Mistral", inst, []chat.Message{system, user, assistant, user},
			"<s> [INST] Be brief.\n\n Hi  [/INST] Hello</s> [INST]  Hi  [/INST]"},
		{"namespace, methods and what is not defined", spaced, []chat.Message{user}, "[Hi]True False None"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			template, err := chat.New(test.source, tokens)
			require.NoError(t, err)
			got, err := template.Render(test.messages, true, nil)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestTemplatesRefuseBadMessages(t *testing.T) {
	template, err := chat.New(inst, tokens)
	require.NoError(t, err)
	_, err = template.Render([]chat.Message{user, user}, true, nil)
	require.ErrorIs(t, err, chat.ErrTemplate)
	require.ErrorContains(t, err, "roles must alternate")
	_, err = chat.New("{% for %}", nil)
	require.ErrorIs(t, err, chat.ErrTemplate)
}

func TestTemplatesReadNoFiles(t *testing.T) {
	for _, source := range []string{`{% include "/etc/passwd" %}`, `{% extends "/etc/passwd" %}`,
		`{% import "/etc/passwd" as p %}`} {
		template, err := chat.New(source, nil)
		if err == nil {
			_, err = template.Render([]chat.Message{user}, true, nil)
		}
		require.ErrorIs(t, err, chat.ErrTemplate, source)
	}
}
