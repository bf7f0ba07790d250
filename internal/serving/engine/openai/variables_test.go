package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/testkit/level"
)

const thinkingTemplate = "{{ enable_thinking is defined and enable_thinking }}"

// Ensure that enable_thinking and reasoning_effort of a body become variables of the template, before variables of
// chat_template_kwargs, which come before the server's defaults.
func TestABodyMayHaveEnableThinkingAndReasoningEffort(t *testing.T) {
	const on, off = `{"enable_thinking": true}`, `{"enable_thinking": false}`
	for _, test := range []struct{ name, template, defaults, fields, want string }{
		{"off", thinkingTemplate, "", `, "enable_thinking": false`, "False"},
		{"on", thinkingTemplate, "", `, "enable_thinking": true`, "True"},
		{"null", "{{ enable_thinking is defined }}", "", `, "enable_thinking": null`, "False"},
		{"of DeepSeek", "{{ thinking }}", "", `, "enable_thinking": true`, "True"},
		{"of DeepSeek's API", thinkingTemplate, on, `, "thinking": {"type": "disabled"}`, "False"},
		{"of Kimi's API", "{{ thinking }}", "", `, "thinking": {"type": "enabled"}`, "True"},
		{"adaptive", "{{ enable_thinking is defined }}", "", `, "thinking": {"type": "adaptive", "budget_tokens": 0}`, "False"},
		{"of OpenRouter", thinkingTemplate, on, `, "reasoning": {"enabled": false}`, "False"},
		{"effort of OpenRouter", "{{ reasoning_effort }}", "", `, "reasoning": {"effort": "high", "max_tokens": null}`, "high"},
		{"no effort of OpenRouter", thinkingTemplate, on, `, "reasoning": {"effort": "none", "summary": "auto"}`, "False"},
		{"effort of Cline", "{{ reasoning_effort }}", "", `, "effort": "high", "reasoningSummary": "auto"`, "high"},
		{"OpenAI's field before others", "{{ reasoning_effort }}", "", `, "effort": "high", "reasoning": {"effort": "high"}, "reasoning_effort": "low"`, "low"},
		{"Alibaba's field before others", thinkingTemplate, "", `, "thinking": {"type": "enabled"}, "reasoning": {"enabled": true}, "enable_thinking": false`, "False"},
		{"of no template", "x", "", `, "enable_thinking": true, "reasoning_effort": "high"`, "x"},
		{"before kwargs", thinkingTemplate, "", `, "enable_thinking": false, "chat_template_kwargs": ` + on, "False"},
		{"no effort", thinkingTemplate, on, `, "reasoning_effort": "none"`, "False"},
		{"effort", "{{ reasoning_effort }}", "", `, "reasoning_effort": "minimal"`, "low"},
		{"effort before kwargs", "{{ reasoning_effort }}", `{"reasoning_effort": "high"}`, `, "reasoning_effort": "max", ` +
			`"chat_template_kwargs": {"reasoning_effort": "low"}`, "high"},
		{"default", thinkingTemplate, on, ``, "True"},
		{"the field before the default", thinkingTemplate, on, `, "enable_thinking": false`, "False"},
		{"kwargs before the default", thinkingTemplate, on, `, "chat_template_kwargs": ` + off, "False"},
		{"other kwargs beside the default", thinkingTemplate + "{{ a }}", on, `, "chat_template_kwargs": {"a": 1}`, "True1"},
		{"default effort", "{{ reasoning_effort }}", `{"reasoning_effort": "low"}`, ``, "low"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, func(c *openai.Config, _ *engine.Config) {
				c.Template, c.DefaultKwargs = newTemplate(t, test.template), json.RawMessage(test.defaults)
			})
			require.Equal(t, test.want, s.prompt(t, user, test.fields))
			a := s.ask(t, chats, talk+`"n": 1`+test.fields+"}")
			require.Equal(t, 200, a.Status, a.Text)
			require.Equal(t, len(test.want), a.Usage.Prompt)
		})
	}
}

func TestTheDefaultsOfATemplateAreThoseOfAllInterfaces(t *testing.T) {
	prompts := make(chan int, 1)
	s := startAll(t, func(c *openai.Config, _ *engine.Config) {
		c.Template, c.DefaultKwargs = newTemplate(t, thinkingTemplate), json.RawMessage(`{"enable_thinking": true}`)
		c.Record = func(r openai.Record) { prompts <- r.PromptTokens }
	})
	for _, test := range []struct {
		path, fields, want string
	}{
		{messages, "", "True"}, {messages, `, "thinking": {"type": "disabled"}`, "False"},
		{respond, "", "True"}, {respond, `, "reasoning": {"effort": "none"}`, "False"},
	} {
		a := s.ask(t, test.path, bodyOf(test.path, "x", 1)+test.fields+"}")
		require.Equal(t, 200, a.Status, a.Text)
		require.Equal(t, len(test.want), <-prompts, "%s %s", test.path, test.fields)
	}
}

// Ensure that in all interfaces an image is refused by an error that names --omit-images, and that with this flag the
// model sees in its place that it was left out.
func TestImagesAreLeftOutIfTheServerSaysSo(t *testing.T) {
	level.SkipNormal(t)
	const (
		inChat     = `{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}, "cache_control": {"type": "ephemeral"}}`
		inResponse = `{"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}`
		inMessage  = `{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}, "cache_control": {"type": "ephemeral"}}`
		text       = `{"type": "text", "text": "a"}`
		called     = `{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}`
		used       = `{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}`
	)
	for _, test := range []struct{ name, path, input, part, want string }{
		{"chat", chats, `"messages": [{"role": "user", "content": [` + text + `, ` + inChat + `, ` + text + `]}]`,
			"Part 1 of message 0", "a\n[image left out]\na"},
		{"in the history of a chat", chats, `"messages": [{"role": "user", "content": [` + inChat + `]}, {"role": "assistant", "content": "b"}, ` +
			`{"role": "user", "content": "c"}]`, "Part 0 of message 0", "[image left out]bc"},
		{"response", respond, `"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}, ` + inResponse + `]}]`,
			"Part 1 of item 0 of input", "a\n[image left out]"},
		{"output of a function", respond, `"input": [` + called + `, {"type": "function_call_output", "call_id": "c", "output": [` + inResponse + `]}]`,
			"Part 0 of item 1 of input", "[image left out]"},
		{"message", messages, `"max_tokens": 1, "messages": [{"role": "user", "content": [` + text + `, ` + inMessage + `]}]`,
			"Block 1 of message 0", "a\n[image left out]"},
		{"result of a tool", messages, `"max_tokens": 1, "messages": [` + used + `, {"role": "user", "content": [{"type": "tool_result", ` +
			`"tool_use_id": "c", "content": [` + inMessage + `]}]}]`, "Block 0 of a tool_result of message 1", "[image left out]"},
		{"counted", countMessages, `"messages": [{"role": "user", "content": [` + inMessage + `]}]`, "Block 0 of message 0", "[image left out]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var omit bool
			prompts := make(chan int, 1)
			change := func(c *openai.Config, _ *engine.Config) {
				c.Template, c.OmitImages = newTemplate(t, "{% for m in messages %}{{ m.content }}{% endfor %}"), omit
				c.Record = func(r openai.Record) { prompts <- r.PromptTokens }
			}
			a := startAll(t, change).ask(t, test.path, demo+test.input+"}")
			<-prompts
			require.Equal(t, 400, a.Status, a.Text)
			require.Contains(t, a.Error.Message, test.part+" is an image, and this model reads text; leave it out, or start the server with --omit-images")
			omit = true
			a = startAll(t, change).ask(t, test.path, demo+test.input+"}")
			require.Equal(t, 200, a.Status, a.Text)
			if got := <-prompts; test.path != countMessages {
				require.Equal(t, len(test.want), got)
			} else {
				require.JSONEq(t, `{"input_tokens": 16}`, a.Text)
			}
		})
	}
}
