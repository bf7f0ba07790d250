package openai_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

// Ensure that with continue_final_message the answer continues the last message, whatever its role, as in transformers.
func TestTheFinalMessageIsContinued(t *testing.T) {
	const each = "\x01{% for message in messages %}\x02{{ message['content'] }}\x03{% endfor %}" +
		"{% if add_generation_prompt %}\x02{% endif %}"
	const trimmed = "\x01{% for message in messages %}\x02{{ message['content'] | trim }}!\x03{% endfor %}"
	const shouted = "\x01{% for message in messages %}\x02{{ message['content'] | upper }}\x03{% endfor %}"
	for _, test := range []struct{ name, template, last, fields, prompt, answer string }{
		{"the message is open", each, "ab", "", "\x01\x02ab cd\x03\x02ab", " c"},
		{"spaces stay", each, "ab ", "", "\x01\x02ab cd\x03\x02ab ", "cd"},
		{"nothing yet", each, "", "", "\x01\x02ab cd\x03\x02", "ab"},
		{"add_generation_prompt is false", each, "ab", `, "add_generation_prompt": false`, "\x01\x02ab cd\x03\x02ab", " c"},
		{"a template that removes spaces", trimmed, "ab ", "", "\x01\x02ab cd!\x03\x02ab", " c"},
		{"a template that changes the text", shouted, "ab", "", "\x01\x02AB CD\x03\x02AB", " C"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, func(o *openai.Config, _ *engine.Config) { o.Template = newTemplate(t, test.template) })
			for _, role := range []string{"assistant", "user"} {
				body := demo + `"messages": [{"role": "user", "content": "ab cd"}, {"role": "` + role + `", "content": "` +
					test.last + `"}], "continue_final_message": true` + test.fields
				require.Equal(t, bytesOf(test.prompt), s.ask(t, "/tokenize", body+"}").Tokens)
				body += `, "temperature": 0, "max_tokens": 2, "return_token_ids": true`
				for _, how := range []string{`}`, `, "stream": true}`, `, "use_beam_search": true}`} {
					require.Equal(t, bytesOf(test.prompt), s.ask(t, chats, body+how).PromptTokenIDs, how)
					require.Equal(t, test.answer, s.answers(t, chats, body+how)[0].Text, how)
				}
			}
		})
	}
}

func TestAFinalMessageThatTheTemplateLeavesOutIsNotContinued(t *testing.T) {
	s := start(t, func(o *openai.Config, _ *engine.Config) {
		o.Template = newTemplate(t, "\x01{{ messages[0]['content'] }}")
	})
	const body = demo + `"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], ` +
		`"continue_final_message": true}`
	for _, path := range []string{chats, "/tokenize"} {
		a := s.ask(t, path, body)
		require.Equal(t, 400, a.Status, a.Text)
		require.Equal(t, "messages", a.Error.Param)
		require.Equal(t, "The model's chat template leaves out the end of the last message, so it cannot be continued.",
			a.Error.Message)
	}
}
