package openai_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	client "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"
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

var weatherTool = client.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
	Name: "get_weather",
	Parameters: shared.FunctionParameters{"type": "object", "properties": map[string]any{
		"city": map[string]any{"enum": []string{"Rom", "Köln"}}, "days": map[string]any{"type": "integer", "minimum": 1, "maximum": 9}},
		"required": []string{"city", "days"}, "additionalProperties": false},
})

// chatBoth sends a request as it is and as a stream, requires equal messages, and returns one.
func (s *served) chatBoth(t *testing.T, p client.ChatCompletionNewParams) client.ChatCompletionChoice {
	t.Helper()
	c := s.official()
	whole, err := c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	stream := c.Chat.Completions.NewStreaming(t.Context(), p)
	all := client.ChatCompletionAccumulator{}
	names := 0
	for stream.Next() {
		for _, choice := range stream.Current().Choices {
			d := choice.Delta
			require.False(t, choice.FinishReason == "" && d.Role == "" && d.Content == "" && len(d.ToolCalls) == 0 && !strings.Contains(d.RawJSON(), "reasoning"),
				"a chunk without anything new: %s", choice.RawJSON())
			for _, call := range choice.Delta.ToolCalls {
				if call.Function.Name != "" {
					names++
					require.NotEmpty(t, call.ID)
					require.Empty(t, call.Function.Arguments)
				}
			}
		}
		require.True(t, all.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	one, other := whole.Choices[0], all.Choices[0]
	require.Equal(t, one.Message.Content, other.Message.Content)
	require.Equal(t, one.FinishReason, other.FinishReason)
	require.Len(t, other.Message.ToolCalls, len(one.Message.ToolCalls))
	require.Equal(t, len(one.Message.ToolCalls), names)
	for i, call := range one.Message.ToolCalls {
		require.Equal(t, call.Function.Name, other.Message.ToolCalls[i].Function.Name)
		require.Equal(t, call.Function.Arguments, other.Message.ToolCalls[i].Function.Arguments)
		require.EqualValues(t, "function", call.Type)
	}
	return one
}

func TestOfficialClientGetsCallsThatTheModelChooses(t *testing.T) {
	s := startTools(t, "mistral", "")
	const text = `I look.[TOOL_CALLS]get_weather[ARGS]{"city":"Rom","days": 7}` // no three bytes of it occur twice
	p := officialMessage(text)
	p.Tools = []client.ChatCompletionToolUnionParam{weatherTool}
	one := s.chatBoth(t, p)
	require.Equal(t, "I look.", one.Message.Content)
	require.Equal(t, "tool_calls", one.FinishReason)
	require.Len(t, one.Message.ToolCalls, 1)
	require.Equal(t, `{"city":"Rom","days": 7}`, one.Message.ToolCalls[0].Function.Arguments)
	require.Len(t, one.Message.ToolCalls[0].ID, 9)

	p.ToolChoice = client.ChatCompletionToolChoiceOptionUnionParam{OfAuto: client.String("none")}
	one = s.chatBoth(t, p)
	require.Equal(t, text, one.Message.Content)
	require.Equal(t, "stop", one.FinishReason)
	require.Empty(t, one.Message.ToolCalls)
}

func TestOfficialClientGetsCallsThatMustCome(t *testing.T) {
	s := startTools(t, "hermes", "")
	p := officialMessage("Hello")
	p.Tools, p.MaxTokens, p.Temperature = []client.ChatCompletionToolUnionParam{weatherTool}, client.Int(300), client.Float(1)
	p.LogitBias = map[string]int64{"9": -100, "10": -100, "13": -100, "32": -100} // the model would repeat spaces
	for name, choice := range map[string]client.ChatCompletionToolChoiceOptionUnionParam{
		"required": {OfAuto: client.String("required")},
		"named":    client.ToolChoiceOptionFunctionToolChoice(client.ChatCompletionNamedToolChoiceFunctionParam{Name: "get_weather"}),
	} {
		t.Run(name, func(t *testing.T) {
			p.ToolChoice, p.Seed = choice, client.Int(1)
			p.ParallelToolCalls = client.Bool(false)
			one := s.chatBoth(t, p)
			require.Equal(t, "tool_calls", one.FinishReason)
			require.Empty(t, one.Message.Content)
			require.Len(t, one.Message.ToolCalls, 1)
			require.Equal(t, "get_weather", one.Message.ToolCalls[0].Function.Name)
			var arguments struct {
				City string
				Days int
			}
			require.NoError(t, json.Unmarshal([]byte(one.Message.ToolCalls[0].Function.Arguments), &arguments))
			require.Contains(t, []string{"Rom", "Köln"}, arguments.City)
			require.True(t, arguments.Days >= 1 && arguments.Days <= 9)
		})
	}
}

// Ensure that the values none, auto and required of tool_choice, and a named function, have their effect with the tool
// parsers of most families, in whole and in streamed answers. With tool_choice auto, the model decides whether it calls
// a tool. In this test it calls one, because it repeats the user's message, and each message is a call or the beginning
// of one.
func TestChoicesOfToolsInEachFamily(t *testing.T) {
	const object = `{"name":"f","arguments":{}}`
	for _, test := range []struct{ parser, template, text string }{
		{"hermes", "", "<tool_call>"}, {"llama3_json", "", object}, {"llama3_json", "", "<|python_tag|>"},
		{"mistral", "[TOOL_CALLS][ARGS]", "[TOOL_CALLS]"}, {"mistral", "[TOOL_CALLS]", "[TOOL_CALLS]"}, {"granite", "", "<|tool_call|>"},
		{"phi4_mini_json", "functools[", "functools"}, {"phi4_mini_json", "<|tool|><|/tool|>", "<|tool_call|>"},
		{"qwen3_coder", "", "<tool_call>\n<function=f>\n</function>\n</tool_call>"},
		{"openai", "", "<|channel|>commentary to=functions.f"}, {"json", "", object},
	} {
		t.Run(test.parser+" "+test.text, func(t *testing.T) {
			s := startAll(t, func(c *openai.Config, _ *engine.Config) {
				useTools(t, c, test.parser)
				var err error
				c.Format.Tools, err = toolparser.Tools(test.parser, test.template)
				require.NoError(t, err)
			})
			p := officialMessage(test.text)
			p.Tools = []client.ChatCompletionToolUnionParam{client.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: "f"})}
			p.ParallelToolCalls, p.MaxTokens = client.Bool(false), client.Int(90)
			p.LogitBias = map[string]int64{"9": -100, "10": -100, "13": -100, "32": -100} // the model would repeat spaces
			if test.parser == "qwen3_coder" || test.parser == "openai" {                  // whose calls have spaces
				p.LogitBias = nil
			}
			for _, choice := range []client.ChatCompletionToolChoiceOptionUnionParam{
				{OfAuto: client.String("none")}, {OfAuto: client.String("auto")}, {OfAuto: client.String("required")},
				client.ToolChoiceOptionFunctionToolChoice(client.ChatCompletionNamedToolChoiceFunctionParam{Name: "f"})} {
				p.ToolChoice = choice
				one := s.chatBoth(t, p)
				if choice.OfAuto.Value == "none" {
					require.Empty(t, one.Message.ToolCalls)
					require.Equal(t, test.parser == "openai", one.Message.Content == "") // harmony's text has no content
					continue
				}
				require.Equal(t, "tool_calls", one.FinishReason, "%v: %s", choice, one.RawJSON())
				require.Len(t, one.Message.ToolCalls, 1)
				require.Empty(t, one.Message.Content)
				require.Equal(t, "f", one.Message.ToolCalls[0].Function.Name)
				require.JSONEq(t, "{}", one.Message.ToolCalls[0].Function.Arguments)
				if test.parser == "mistral" {
					require.Len(t, one.Message.ToolCalls[0].ID, 9)
				}
			}
		})
	}
}

// Ensure that if max_tokens ends an answer inside a call, the answer is the same in all interfaces, whole and streamed.
// If the answer ends before the arguments of the call, it has no call. Otherwise it has a call with the arguments so
// far. In a message, the call's input is an object with the complete ones of these arguments. The text of the call must
// not be in the answer's content.
func TestCallsThatAreCut(t *testing.T) {
	for _, test := range []struct{ parser, text, call string }{
		{"hermes", "I look.<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ", `{"city":"Rom","days": 7}`},
		{"mistral", `I look.[TOOL_CALLS]get_weather[ARGS]`, `{"city":"Rom","days": 7}`},
	} {
		t.Run(test.parser, func(t *testing.T) {
			s := startTools(t, test.parser, "")
			before := len(test.text)
			for _, n := range []int{len("I look.") + 5, before - 14, before + 9} { // in the marker, the name and the arguments
				arguments := test.call[:max(0, n-before)]
				p := officialMessage(test.text + test.call)
				p.Tools, p.MaxTokens = []client.ChatCompletionToolUnionParam{weatherTool}, client.Int(int64(n))
				one := s.chatBoth(t, p)
				require.Equal(t, []any{"I look.", "length"}, []any{one.Message.Content, one.FinishReason})

				m := s.messageBoth(t, strings.Replace(userMessage(test.text+test.call), "300", strconv.Itoa(n), 1)+messageTools)
				require.Equal(t, []any{"I look.", "max_tokens"}, []any{m.Content[0].Text, m.StopReason})

				r := officialResponse(test.text + test.call)
				r.Tools = []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "get_weather",
					Parameters: weatherTool.OfFunction.Function.Parameters}}}
				r.MaxOutputTokens = client.Int(int64(n))
				got := s.respondBoth(t, r)
				require.Equal(t, []any{"I look.", "incomplete"}, []any{got.OutputText(), string(got.Status)})

				calls := 0
				if arguments != "" {
					calls = 1
					require.Equal(t, arguments, one.Message.ToolCalls[0].Function.Arguments)
					require.True(t, json.Valid(m.Content[1].Input))
					require.NotContains(t, string(m.Content[1].Input), "INVALID")
					call := got.Output[1].AsFunctionCall()
					require.Equal(t, []any{arguments, "incomplete"}, []any{call.Arguments, string(call.Status)})
				}
				require.Len(t, one.Message.ToolCalls, calls)
				require.Len(t, m.Content, calls+1)
				require.Len(t, got.Output, calls+1)
			}
		})
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

// Ensure that a client can send back the calls it got, with their results.
func TestOfficialClientContinuesAfterCalls(t *testing.T) {
	s := startTools(t, "mistral", "")
	c := s.official()
	p := officialMessage(`[TOOL_CALLS]get_weather[ARGS]{"city":"Rom","days": 7}`)
	p.Tools = []client.ChatCompletionToolUnionParam{weatherTool}
	got, err := c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	calls := got.Choices[0].Message.ToolCalls
	require.Len(t, calls, 1)
	p.Messages = append(p.Messages, got.Choices[0].Message.ToParam(), client.ToolMessage("Sunny, 20°.", calls[0].ID))
	got, err = c.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "Sunny, 20°.", got.Choices[0].Message.Content)
	require.Equal(t, "stop", got.Choices[0].FinishReason)
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
	s = start(t, func(c *openai.Config, _ *engine.Config) { c.Format.Tools = toolparser.Choose("").Tools })
	a = s.ask(t, chats, body)
	require.Equal(t, "tools", a.Error.Param)
	require.Contains(t, a.Error.Message, `The chat template of the model "demo" does not show tools to the model`)
}
