package openai_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/toolparser"
)

// startMarked serves the model that repeats the last message. Its special tokens are the markers of Mistral's calls,
// and <other>. If the text of a message contains the name of a special token, the prompt has the special token there.
func startMarked(t *testing.T, template, reasoning string) *served {
	vocabulary := openTokenizer(t, "\x03", map[string]any{"id": 14, "content": "[TOOL_CALLS]", "special": true},
		map[string]any{"id": 15, "content": "[ARGS]", "special": true}, map[string]any{"id": 16, "content": "<other>", "special": true},
		map[string]any{"id": 3, "content": "\x03"})
	return start(t, func(c *openai.Config, e *engine.Config) {
		c.Template, c.ParseSpecial, e.Tokenizer = newTemplate(t, template), true, vocabulary
		c.Format = toolparser.Choose("[TOOL_CALLS][ARGS]")
		if reasoning != "" {
			var err error
			c.Format.Reasoning, err = toolparser.Thinking(reasoning)
			require.NoError(t, err)
		}
	})
}

const callF = `"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]`

// Ensure that markers are found if they are special tokens. Neither they nor other special tokens are shown.
func TestMarkersThatAreSpecialTokensAreFound(t *testing.T) {
	s := startMarked(t, echoTools, "")
	body := func(fields string) string {
		return demo + `"messages": [{"role": "user", "content": "Yes.<other>[TOOL_CALLS]f[ARGS]{\"a\":7}"}], "temperature": 0` + fields + `}`
	}
	for _, stream := range []string{"", `, "stream": true`} {
		var content, calls string
		for _, c := range s.ask(t, chats, body(`, `+callF+stream)).Choices {
			for _, m := range []message{c.Message, c.Delta} {
				content += m.Content
				for _, call := range m.ToolCalls {
					calls += call.Function.Name + call.Function.Arguments
				}
			}
		}
		require.Equal(t, "Yes.", content)
		require.Equal(t, `f{"a":7}`, calls)
	}
	require.NotContains(t, s.ask(t, chats, body("")).Choices[0].Message.Content, "<other>")
	got := s.ask(t, chats, body(`, "skip_special_tokens": false`)).Choices[0].Message
	require.Equal(t, `Yes.<other>[TOOL_CALLS]f[ARGS]{"a":7}`, got.Content)
}

// Ensure that with tool_choice "required" a call has the special tokens of the family. The answer ends when the call
// is complete.
func TestCallsThatMustComeHaveTheMarkersOfTheFamily(t *testing.T) {
	s := startMarked(t, echoTools, "")
	a := s.ask(t, chats, talk[:len(talk)-len(`"max_tokens": 1, `)]+`"max_tokens": 60, "temperature": 0, "tools": [{"type": "function", "function":
		{"name": "f"}}], "tool_choice": "required", "parallel_tool_calls": false, "return_token_ids": true`+noSpaces+`}`)
	require.Equal(t, 200, a.Status, a.Text)
	require.Equal(t, []int32{14, 'f', 15, '{', '}'}, a.Choices[0].TokenIDs)
	require.Equal(t, "tool_calls", a.Choices[0].Finish)
}

// Ensure that the form of an answer applies to the text after the reasoning, and not to the reasoning.
func TestFormsBeginAfterTheReasoning(t *testing.T) {
	s := startMarked(t, echoTools, "deepseek_r1")
	for i, stream := range []string{"", `, "stream": true`} {
		var reasoning, content string
		a := s.ask(t, chats, demo+fmt.Sprintf(`"messages": [{"role": "user", "content": "Hm, 12?</think>xyz"}], "temperature": 0, "max_tokens": 40,
			"structured_outputs": {"regex": "[0-9]{3}"}%s}`, stream))
		require.Equal(t, 200, a.Status, a.Text)
		for _, c := range a.Choices {
			reasoning, content = reasoning+c.Message.Reasoning+c.Delta.Reasoning, content+c.Message.Content+c.Delta.Content
		}
		require.Equal(t, "Hm, 12?", reasoning, i)
		require.Regexp(t, `^[0-9]{3}$`, content, i)
	}
}
