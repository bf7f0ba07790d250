//go:build long

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
		{"lfm2", "", "<|tool_call_start|>[f()]"}, {"pythonic", "", "[f()]"},
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
