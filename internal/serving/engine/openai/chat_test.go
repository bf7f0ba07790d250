package openai_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model/chat"
)

// startChat serves a template whose special token bos_token is b.
func startChat(t *testing.T, template string) *served {
	return start(t, func(c *openai.Config, _ *engine.Config) {
		var err error
		c.Template, err = chat.New(template, map[string]string{"bos_token": "b"})
		require.NoError(t, err)
	})
}

// prompt returns the prompt that the template makes from messages. fields are further fields of the request.
func (s *served) prompt(t *testing.T, messages, fields string) string {
	a := s.ask(t, "/tokenize", `{"messages": [`+messages+`]`+fields+`}`)
	require.Equal(t, 200, a.Status, a.Text)
	var text []byte // tokens are bytes
	for _, id := range a.Tokens {
		text = append(text, byte(id))
	}
	return string(text)
}

const user = `{"role": "user", "content": "x"}`

// Ensure that the variables in chat_template_kwargs reach the template. If a variable is an object, its members keep
// their order. reasoning_effort works as in vLLM, also together with chat_template_kwargs. Names that the server sets
// itself are refused.
func TestSettingsReachTheChatTemplate(t *testing.T) {
	s := startChat(t,
		`{{ messages[0].content }}{% if enable_thinking is defined and enable_thinking is false %}<no>{% endif %}`+
			`{% if count == 9 %}10{% endif %}{{ name }}`)
	for settings, want := range map[string]string{
		`{}`: "x", `null`: "x", `{"enable_thinking": false}`: "x<no>", `{"enable_thinking": true}`: "x",
		`{"count": 9, "name": "abc"}`: "x10abc", `{"name": {"b": 1, "a": [2.0, null]}}`: "x{'b': 1, 'a': [2.0, None]}",
		`{"other": [1, {"a": null}]}`: "x",
	} {
		require.Equal(t, want, s.prompt(t, user, `, "chat_template_kwargs": `+settings))
		a := s.ask(t, chats, talk+`"chat_template_kwargs": `+settings+"}")
		require.Equal(t, len(want), a.Usage.Prompt, settings)
	}
	a := s.ask(t, chats, talk+`"chat_template_kwargs": {"bos_token": "x"}}`)
	require.Equal(t, 400, a.Status)
	require.Contains(t, a.Error.Message, `"bos_token" is set by the server; leave it out`)

	s = startChat(t, "{{ reasoning_effort }}")
	for fields, want := range map[string]string{
		`"reasoning_effort": "low"`: "low", `"reasoning_effort": "high"`: "high",
		`"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "medium"}`: "low",
		`"reasoning_effort": null, "chat_template_kwargs": {"reasoning_effort": "medium"}`:  "medium",
	} {
		require.Equal(t, len(want), s.ask(t, chats, talk+fields+"}").Usage.Prompt, fields)
	}
	a = s.ask(t, chats, talk+`"reasoning_effort": "much"}`)
	require.Equal(t, 400, a.Status)
	require.Equal(t, "reasoning_effort", a.Error.Param)
}

// Ensure that messages of all roles, including a history with tool calls, reach the template as in vLLM. The parts of
// a message are joined as lines. The arguments of a call keep the order of their members. Arguments that are not JSON
// reach the template as a string. The reasoning is in reasoning and in reasoning_content.
func TestMessagesAreRendered(t *testing.T) {
	s := startChat(t, "{% for m in messages %}[{{ m.role }}|{{ m.name }}|{{ m.content }}|{{ m.reasoning }}|"+
		"{{ m.reasoning_content }}|{{ m.tool_call_id }}{% for c in m.tool_calls %}|{{ c.id }} {{ c.function.name }} "+
		"{{ c.function.arguments | tojson }} {{ c.function | tojson }}{% endfor %}{{ m.tool_calls is defined }}]{% endfor %}"+
		"{{ tools is none and documents is none }}")
	call := func(arguments string) string {
		return `{"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", ` +
			`"arguments": ` + arguments + `}}]}`
	}
	for _, test := range []struct{ messages, want string }{
		{`{"role": "user", "name": "Ann", "content": "x"}`, "[user|Ann|x|||False]"},
		{`{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}`,
			"[user||a\nb|||False]"},
		{call(`"{\"b\": 1, \"a\": [2.5]}"`),
			`[assistant||||||c1 f {"b": 1, "a": [2.5]} {"name": "f", "arguments": {"b": 1, "a": [2.5]}}True]`},
		{call(`{"b": 1}`), `[assistant||||||c1 f {"b": 1} {"name": "f", "arguments": {"b": 1}}True]`},
		{call(`""`), `[assistant||||||c1 f {} {"name": "f", "arguments": {}}True]`},
		{call(`"{} {}"`), `[assistant||||||c1 f "{} {}" {"name": "f", "arguments": "{} {}"}True]`},
		{call(`null`), `[assistant||||||c1 f {} {"name": "f", "arguments": {}}True]`},
		{call(`{}`) + `, {"role": "tool", "tool_call_id": "c1", "content": "7"}`,
			`[assistant||||||c1 f {} {"name": "f", "arguments": {}}True][tool||7|||c1False]`},
		{`{"role": "tool", "content": "7"}`, "[tool||7|||False]"},
		{`{"role": "assistant", "content": "x", "tool_calls": [], "tool_call_id": "c1"}`, "[assistant||x|||False]"},
		{`{"role": "assistant", "content": "x", "tool_calls": null, "reasoning": "why"}`, "[assistant||x|why|why|False]"},
		{`{"role": "assistant", "content": "x", "reasoning_content": "why"}`, "[assistant||x|why|why|False]"},
		{`{"role": "user", "content": "x", "reasoning_content": "why", "tool_calls": [{"function": {"name": "f"}}]}`,
			"[user||x|||False]"},
	} {
		require.Equal(t, test.want+"True", s.prompt(t, test.messages, ""), test.messages)
	}
	for _, role := range []string{"system", "developer", "user", "assistant", "tool"} {
		message := fmt.Sprintf(`{"role": %q, "content": "x"}`, role)
		require.Equal(t, "["+role+"||x|||False]True", s.prompt(t, message, ""))
	}
}

// Ensure that a template refuses the arguments of a call if it needs JSON and they are not JSON. The error names
// their place.
func TestArgumentsThatAreNoJSONAreRefusedByATemplateThatNeedsJSON(t *testing.T) {
	s := startChat(t, "{% for m in messages %}{% for c in m.tool_calls %}{% for k, v in c.function.arguments | items %}{{ k }}"+
		"{% endfor %}{% endfor %}{% endfor %}")
	call := func(arguments string) string {
		return `{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": ` + arguments + `}}]}`
	}
	require.Equal(t, "b", s.prompt(t, user+", "+call(`"{\"b\": 1}"`), ""))
	a := s.ask(t, chats, demo+`"messages": [`+user+", "+call(`"{\"b\": "`)+`]}`)
	require.Equal(t, 400, a.Status, a.Text)
	require.Equal(t, "messages", a.Error.Param)
	require.Contains(t, a.Error.Message, "The arguments of call 0 of message 1 are not JSON, and the model's chat template")
}

// Ensure that the arguments of calls are strings in a template that concatenates them with strings. An example of
// such a template is that of DeepSeek-V3.1.
func TestArgumentsAreTextsForATemplateThatNeedsTexts(t *testing.T) {
	s := startChat(t, "{% for m in messages %}{% for c in m.tool_calls %}{{ '<' + c.function.name + '>' + c.function.arguments }}"+
		"{% endfor %}{% endfor %}")
	const call = `{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\"b\": 1, \"a\":[\"ü\"]}"}}]}`
	require.Equal(t, `<f>{"b": 1, "a": ["ü"]}`, s.prompt(t, call, ""))
}

// Ensure that tools and reasoning also reach templates with other names for these variables. Examples are the
// templates of SmolLM3 and gpt-oss.
func TestTemplatesHaveTheirOwnNames(t *testing.T) {
	const call = `"tool_calls": [{"function": {"name": "f"}}]`
	for _, test := range []struct{ name, template, messages, fields, want string }{
		{"tools", "{{ xml_tools[0].function.name }}", user, `, "tools": [{"function": {"name": "f"}}]`, "f"},
		{"tools that the client gives", "{{ xml_tools }}{{ python_tools }}", user,
			`, "tools": [{"function": {"name": "f"}}], "chat_template_kwargs": {"python_tools": ["x"]}`, "['x']"},
		{"reasoning", "{{ messages[0].thinking }}", `{"role": "assistant", "reasoning": "why", ` + call + `}`, "", "why"},
		{"reasoning and content", "{{ messages[0].thinking }}", `{"role": "assistant", "content": "x", "reasoning": "why", ` + call + `}`, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, startChat(t, test.template).prompt(t, test.messages, test.fields))
		})
	}
}

// Ensure that the template gets tools even if tool_choice is none, as in vLLM. /tokenize counts these tools.
func TestToolsThatMayNotBeCalledAreShownToTheModel(t *testing.T) {
	s := startChat(t, "{% for t in tools or [] %}[{{ t | tojson }}]{% endfor %}{{ tools is none }}")
	const tools = `"tools": [{"type": "function", "function": {"name": "f", "parameters": {"b": {}, "a": 1}}}]`
	const want = `[{"type": "function", "function": {"name": "f", "parameters": {"b": {}, "a": 1}}}]False`
	require.Equal(t, want, s.prompt(t, user, ", "+tools))
	a := s.ask(t, chats, talk+tools+`, "tool_choice": "none"}`)
	require.Equal(t, 200, a.Status, a.Text)
	require.Equal(t, len(want), a.Usage.Prompt)
	require.Equal(t, "True", s.prompt(t, user, `, "tools": []`))
	require.Equal(t, "\x01"+want, s.prompt(t, user, `, "add_special_tokens": true, `+tools))
	a = s.ask(t, chats, talk+`"add_special_tokens": true}`)
	require.Equal(t, len("\x01True"), a.Usage.Prompt)
	for more, param := range map[string]string{
		`"tool_choice": "required"`:                                              "tool_choice",
		`"tools": [{"type": "function"}], "tool_choice": "none"`:                 "tools",
		`"tools": [5], "tool_choice": "none"`:                                    "tools",
		tools + `, "tool_choice": "none", "chat_template_kwargs": {"tools": []}`: "chat_template_kwargs",
	} {
		a := s.ask(t, chats, talk+more+"}")
		require.Equal(t, 400, a.Status, more)
		require.Equal(t, param, a.Error.Param, more)
	}
}

func TestTokenizeAndDetokenizeAnswerAsVLLMDoes(t *testing.T) {
	s := start(t, nil)
	for _, c := range []struct{ path, body, want string }{
		{"/tokenize", `{"model": "", "prompt": "ab"}`, `{"count":3,"max_model_len":1024,"tokens":[1,97,98],"token_strs":null}`},
		{"/tokenize", `{"model": "demo", "prompt": "aü", "add_special_tokens": false, "return_token_strs": true}`,
			`{"count":3,"max_model_len":1024,"tokens":[97,195,188],"token_strs":["a","�","�"]}`},
		{"/tokenize", `{"prompt": "", "add_special_tokens": false}`,
			`{"count":0,"max_model_len":1024,"tokens":[],"token_strs":null}`},
		{"/detokenize", `{"tokens": [97, 195, 188]}`, `{"prompt":"aü"}`},
		{"/detokenize", `{"tokens": []}`, `{"prompt":""}`},
	} {
		require.Equal(t, c.want+"\n", s.ask(t, c.path, c.body).Text, c.body)
	}
	for _, c := range []struct{ path, body, says string }{
		{"/tokenize", `{}`, "prompt is missing"},
		{"/tokenize", `{"prompt": "a", "messages": []}`, "both prompt and messages"},
		{"/tokenize", `{"messages": []}`, "messages is empty"},
		{"/tokenize", `{"prompt": "a", "model": "other"}`, `The model "other" does not exist`},
		{"/tokenize", `[]`, "an object is expected"},
		{"/detokenize", `{}`, "tokens is missing"},
		{"/detokenize", `{"tokens": [-1]}`, "tokens contains -1"},
		{"/detokenize", `{"tokens": [100000]}`, "the vocabulary has the tokens 0 to"},
	} {
		a := s.ask(t, c.path, c.body)
		require.Contains(t, []int{400, 404}, a.Status)
		require.Contains(t, a.Error.Message, c.says, c.body)
	}
}

// Ensure that a broken chat template makes only chat requests fail.
func TestAModelWithABrokenTemplateCompletesTexts(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) {
		c.Template, c.TemplateError = nil, fmt.Errorf("line 3: what is this")
	})
	require.Equal(t, 200, s.ask(t, texts, text+`"n": 1}`).Status)
	require.Contains(t, s.ask(t, chats, talk+`"n": 1}`).Error.Message,
		"cannot be used: line 3: what is this. Use /v1/completions")
}
