package openai_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/toolparser"
)

// echoTools is a template that makes the model repeat the last message, as induction.Template does. It mentions tools.
const echoTools = "\x01{% if tools %}{% endif %}{% for message in messages if message.content %}\x02{{ message.content }}\x03" +
	"{% endfor %}" +
	"{% if add_generation_prompt %}\x02{% endif %}"

// startTools serves a model that repeats the last message, with the parsers of these names.
func startTools(t *testing.T, tools, reasoning string) *served {
	return startAll(t, func(c *openai.Config, _ *engine.Config) {
		useTools(t, c, tools)
		if reasoning != "" {
			var err error
			c.Format.Reasoning, err = toolparser.Thinking(reasoning)
			require.NoError(t, err)
		}
	})
}

// useTools sets a template that mentions tools, and a tool parser.
func useTools(t *testing.T, c *openai.Config, name string) {
	var err error
	c.Template = newTemplate(t, echoTools)
	c.Format.Tools, err = toolparser.Tools(name, "")
	require.NoError(t, err)
}

// Ensure that a call that the model chooses is beside the content, in a whole and in a streamed answer, and that it stays
// text with tool_choice none.
func TestACallIsBesideTheContent(t *testing.T) {
	s := startTools(t, "mistral", "")
	const text = `I look.[TOOL_CALLS]get_weather[ARGS]{"city":"Rom","days": 7}` // no three bytes of it occur twice
	for _, test := range []struct{ choice, content, call, finish string }{
		{"auto", "I look.", `get_weather({"city":"Rom","days": 7})`, "tool_calls"}, {"none", text, "()", "stop"},
	} {
		for _, more := range []string{"", `, "stream": true`} {
			a := s.ask(t, chats, bodyOf(messages, text, 300)+`, "tool_choice": "`+test.choice+`",
				"tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
				"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city", "days"]}}}]`+more+"}")
			require.Equal(t, 200, a.Status, a.Text)
			var content, name, arguments, finish string
			for _, c := range a.Choices {
				content, finish = content+c.Message.Content+c.Delta.Content, c.Finish
				for _, call := range append(c.Message.ToolCalls, c.Delta.ToolCalls...) {
					name, arguments = name+call.Function.Name, arguments+call.Function.Arguments
				}
			}
			require.Equal(t, []string{test.content, test.call, test.finish}, []string{content, name + "(" + arguments + ")", finish}, more)
		}
	}
}

// Ensure that the reasoning is in the fields reasoning and reasoning_content, whole and streamed, and can be left out.
func TestReasoningIsBesideTheContent(t *testing.T) {
	s := startTools(t, "hermes", "deepseek_r1")
	body := func(fields string) string {
		return demo + `"messages": [{"role": "user", "content": "Hm.</think>Yes."}], "temperature": 0` + fields + `}`
	}
	for _, more := range []string{"", `, "stream": true`} {
		var reasoning, content string
		for _, c := range s.ask(t, chats, body(more)).Choices {
			for _, m := range []message{c.Message, c.Delta} {
				require.Equal(t, m.Reasoning, m.ReasoningContent)
				reasoning, content = reasoning+m.Reasoning, content+m.Content
			}
		}
		require.Equal(t, "Hm.", reasoning, more)
		require.Equal(t, "Yes.", content, more)
	}
	for more, want := range map[string]string{``: "11", `, "n": 2`: "22", `, "include_reasoning": false`: "11",
		`, "stream": true, "stream_options": {"include_usage": true}`: "11"} {
		require.Contains(t, s.ask(t, chats, body(more)).Text, `"completion_tokens_details":{"reasoning_tokens":`+want+`}`, more)
	}
	require.NotContains(t, s.complete(t, "x", 1, "").Text, "completion_tokens_details")
	a := s.ask(t, chats, body(`, "include_reasoning": false`))
	require.Equal(t, "Yes.", a.Choices[0].Message.Content)
	require.NotContains(t, a.Text, "Hm.")
}

// Ensure that bad tools and choices are refused. The field tool_choice limits the tools that may be called.
func TestToolsAreChecked(t *testing.T) {
	s := startTools(t, "hermes", "")
	one := func(fields string) string { return `{"type": "function", "function": {"name": "f"` + fields + `}}` }
	other := `{"type": "function", "function": {"name": "get_time"}}`
	body := func(tools, choice string) string {
		return demo + `"messages": [{"role": "user", "content": "x"}], "max_tokens": 100, "temperature": 0, "tools": [` + tools +
			`], "tool_choice": ` + choice + `}`
	}
	const long = 128
	for _, test := range []struct{ name, tools, choice, param, says string }{
		{"an unknown word", one(""), `"any"`, "tool_choice", `and {"type": "allowed_tools",`},
		{"an unknown function", one(""), `{"type": "function", "function": {"name": "g"}}`, "tool_choice", `the function "g", which is not in tools`},
		{"an unknown type", one(""), `{"type": "custom"}`, "tool_choice", "neither a known word nor a function"},
		{"an unknown allowed function", one(""), `{"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function",
			"function": {"name": "g"}}]}}`, "tool_choice", `the function "g", which is not in tools`},
		{"an unknown mode", one(""), `{"type": "allowed_tools", "allowed_tools": {"mode": "zork", "tools": [{"type": "function",
			"function": {"name": "f"}}]}}`, "tool_choice", `The mode of allowed_tools is "zork"; auto and required are known.`},
		{"no allowed function", one(""), `{"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}`, "tool_choice",
			"allowed_tools has no tools"},
		{"required without tools", "", `"required"`, "tool_choice", "there are no tools"},
		{"a tool that is no function", `{"type": "custom", "custom": {"name": "c"}}`, `"auto"`, "tools", `Tool 0 has the type "custom", which is not supported`},
		{"another type", `{"type": "custom", "function": {"name": "c"}}`, `"auto"`, "tools", `Tool 0 has the type "custom"`},
		{"a bad name", strings.Replace(one(""), "f\"}", "a b\"}", 1), `"auto"`, "tools", `The name of tool 0 is "a b"`},
		{"a long name", strings.Replace(one(""), "f\"}", strings.Repeat("f", long+1)+"\"}", 1), `"auto"`, "tools", "has 129 bytes; at most 128"},
		{"a name twice", one("") + "," + one(""), `"auto"`, "tools", `Two tools have the name "f"`},
		{"too many", strings.Repeat(one("")+",", long) + one(""), `"auto"`, "tools", "There are 129 tools; at most 128 are possible."},
		{"too large", one(`, "description": "` + strings.Repeat("x", 1<<20) + `"`), `"none"`, "tools", "more than 1048576 bytes"},
		{"parameters that are no schema", one(`, "parameters": 5`), `"auto"`, "tools", `The schema of the tool "f" is not a JSON object.`},
		{"parameters that are no object", one(`, "parameters": {"type": "string"}`), `"auto"`, "tools", `The schema of the tool "f" has the type "string"`},
		{"strict", one(`, "strict": "yes"`), `"auto"`, "tools", "In the function of tool 0, strict is a JSON string; true or false is expected."},
		{"a description", one(`, "description": 5`), `"auto"`, "tools", "In the function of tool 0, description is a JSON number; a string is expected."},
		{"a type", `{"type": 5, "function": {"name": "f"}}`, `"auto"`, "tools", "In tool 0, type is a JSON number; a string is expected."},
		{"a function", `{"type": "function", "function": "f"}`, `"auto"`, "tools", "The function of tool 0 is a JSON string; an object is expected."},
		{"a name", `{"type": "function", "function": {"name": 5}}`, `"auto"`, "tools", "name is a JSON number; a string is expected."},
		{"a tool", `"f"`, `"auto"`, "tools", "Tool 0 is a JSON string; an object is expected."},
		{"no name", `{"type": "function", "function": {}}`, `"auto"`, "tools", "Tool 0 has no function with a name."},
		{"a choice with a name of another type", one(""), `{"type": "function", "function": {"name": 5}}`, "tool_choice", "neither a known word nor a function"},
		{"an allowed tool of another type", one(""), `{"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "custom",
			"function": {"name": "f"}}]}}`, "tool_choice", `allowed_tools has a tool of the type "custom"; function is possible.`},
		{"a schema that cannot be obeyed", one(`, "parameters": {"properties": {"a": {"type": "array", "uniqueItems": true}}}`), `"required"`, "tools",
			`The schema of the tool "f" cannot be obeyed: `},
		{"the same, strict", one(`, "strict": true, "parameters": {"properties": {"a": {"type": "array", "uniqueItems": true}}}`), `"auto"`, "tools",
			`The schema of the tool "f" cannot be obeyed: `},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := s.ask(t, chats, body(test.tools, test.choice))
			require.Equal(t, 400, a.Status, a.Text)
			require.Equal(t, test.param, a.Error.Param)
			require.Contains(t, a.Error.Message, test.says)
		})
	}
	for _, test := range []struct{ name, tools, choice, want string }{
		{"without parameters", other, `"required"`, `get_time({})`},
		{"a choice of two", one("") + "," + other, `{"type": "function", "function": {"name": "get_time"}}`, `get_time({})`},
		{"allowed tools", one("") + "," + other,
			`{"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "get_time"}}]}}`, `get_time({})`},
		{"an object without a type", `{"type": "function", "function": {"name": "h", "parameters": {"properties": {"a": {"const": 1}}, "required": ["a"],
			"additionalProperties": false}}}`, `"required"`, `h({"a":1})`},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := s.ask(t, chats, strings.TrimSuffix(body(test.tools, test.choice), "}")+`, "parallel_tool_calls": false`+noSpaces+"}")
			require.Equal(t, 200, a.Status, a.Text)
			calls := a.Choices[0].Message.ToolCalls
			require.Len(t, calls, 1, a.Text)
			require.Equal(t, test.want, calls[0].Function.Name+"("+calls[0].Function.Arguments+")")
		})
	}
}

// noSpaces keeps the model from repeating the space that JSON allows.
const noSpaces = `, "logit_bias": {"9": -100, "10": -100, "13": -100, "32": -100}`

// Ensure that a chat with tools is refused if the chat template has no place for tools. The error must say what to do.
func TestToolsThatTheModelCannotSeeAreRefused(t *testing.T) {
	s := start(t, nil)
	body := talk + `"tools": [{"type": "function", "function": {"name": "f"}}]}`
	a := s.ask(t, chats, body)
	require.Equal(t, 400, a.Status)
	require.Contains(t, a.Error.Message, "This server does not look for tool calls (--tool-call-parser none)")
	s = start(t, func(c *openai.Config, _ *engine.Config) {
		c.Format.Tools, c.Template = toolparser.Choose("").Tools, newTemplate(t, "{{ messages[0].content }}")
	})
	a = s.ask(t, chats, body)
	require.Equal(t, "tools", a.Error.Param)
	require.Contains(t, a.Error.Message, `The chat template of the model "demo" does not show tools to the model`)
}
