package openai_test

import (
	"encoding/json"
	"testing"

	client "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/toolparser"
)

// echoTools makes the model repeat the last message, like induction.Template, and mentions tools.
const echoTools = "\x01{% if tools %}{% endif %}{% for message in messages %}\x02{{ message['content'] }}\x03{% endfor %}" +
	"{% if add_generation_prompt %}\x02{% endif %}"

// startTools serves a model that repeats the last message, with the parsers of these names.
func startTools(t *testing.T, tools, reasoning string) *served {
	return startAll(t, func(c *openai.Config, _ *engine.Config) {
		var err error
		c.Template, err = chat.New(echoTools, nil)
		require.NoError(t, err)
		c.Format.Tools, err = toolparser.Tools(tools, "")
		require.NoError(t, err)
		if reasoning != "" {
			c.Format.Reasoning, err = toolparser.Thinking(reasoning)
			require.NoError(t, err)
		}
	})
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

// Ensure that reasoning has both of its names, whole and streamed, and can be left out.
func TestReasoningIsBesideTheContent(t *testing.T) {
	s := startTools(t, "hermes", "deepseek_r1")
	body := func(more string) string {
		return demo + `"messages": [{"role": "user", "content": "Hm.</think>Yes."}], "temperature": 0` + more + `}`
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
	a := s.ask(t, chats, body(`, "include_reasoning": false`))
	require.Equal(t, "Yes.", a.Choices[0].Message.Content)
	require.NotContains(t, a.Text, "Hm.")
}
