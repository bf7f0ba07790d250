//go:build long

package openai_test

import (
	"encoding/json"
	"testing"

	client "github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"
)

// Ensure that a stop string can end an answer inside a tool call. A whole answer and a stream must have the same
// result: the call has the part of its arguments that comes before the stop string. If there is no such part, the
// answer does not have the call. The finish reason is tool_calls only if the call is complete.
func TestAStopStringCutsACall(t *testing.T) {
	const begin = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
	const whole = begin + "{\"city\":\"Rom\",\"days\": 7}}\n</tool_call>"
	for _, test := range []struct {
		name, text, stop, finish string
		arguments                []string // in chats
		input                    string   // of the last call in messages
	}{
		{"in the arguments", begin + `{"city":"Rom","days": 7}}`, "days", "stop", []string{`{"city":"Rom","`}, `{"city":"Rom"}`},
		{"at their end", begin + `{"city":"Rom","days": 7}}`, "}", "stop", []string{`{"city":"Rom","days": 7`}, `{"city":"Rom"}`},
		{"before the arguments", begin + `{"city":"Rom","days": 7}}`, "name", "stop", nil, ""},
		{"in the name", begin + `{"city":"Rom","days": 7}}`, "weather", "stop", nil, ""},
		{"after a call", whole, "</tool_call>", "tool_calls", []string{`{"city":"Rom","days": 7}`}, `{"city":"Rom","days": 7}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := startTools(t, "hermes", "")
			p := officialMessage(test.text)
			p.Tools, p.MaxTokens = []client.ChatCompletionToolUnionParam{weatherTool}, client.Int(300)
			p.Stop = client.ChatCompletionNewParamsStopUnion{OfString: client.String(test.stop)}
			one := s.chatBoth(t, p)
			var arguments []string
			for _, c := range one.Message.ToolCalls {
				arguments = append(arguments, c.Function.Arguments)
			}
			require.Equal(t, test.arguments, arguments)
			require.Equal(t, []any{"", test.finish}, []any{one.Message.Content, one.FinishReason})
			require.Contains(t, one.RawJSON(), `"stop_reason":"`)

			stop, err := json.Marshal([]string{test.stop})
			require.NoError(t, err)
			m := s.messageBoth(t, userMessage(test.text)+messageTools+`, "stop_sequences": `+string(stop))
			require.Len(t, m.Content, len(test.arguments))
			if test.finish == "stop" {
				require.Equal(t, []any{"stop_sequence", test.stop}, []any{m.StopReason, m.StopSequence})
			} else {
				require.Equal(t, []any{"tool_use", ""}, []any{m.StopReason, m.StopSequence})
			}
			if test.input != "" {
				require.JSONEq(t, test.input, string(m.Content[len(m.Content)-1].Input))
			}
		})
	}
}

// Ensure that if tool_choice requires a call and a stop string occurs before the call's arguments, the answer
// has no part of the call.
func TestAStopStringInACallThatMustCome(t *testing.T) {
	s := startTools(t, "hermes", "")
	p := officialMessage("Hi")
	p.Tools, p.MaxTokens = []client.ChatCompletionToolUnionParam{weatherTool}, client.Int(300)
	p.ToolChoice = client.ChatCompletionToolChoiceOptionUnionParam{OfAuto: client.String("required")}
	p.Stop = client.ChatCompletionNewParamsStopUnion{OfString: client.String("name")}
	one := s.chatBoth(t, p)
	require.Equal(t, []any{"", "stop"}, []any{one.Message.Content, one.FinishReason})
	require.Empty(t, one.Message.ToolCalls)
}
