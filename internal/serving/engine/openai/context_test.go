package openai_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that the error for a prompt over the limit has OpenAI's code and field, and begins like OpenAI's message.
// Clients such as litellm search for this message.
func TestAPromptThatIsTooLongGetsOpenAIsError(t *testing.T) {
	s := start(t, nil)
	long := strings.Repeat("x", 2000)
	for _, test := range []struct{ name, path, body, param, says string }{
		{"a text", texts, demo + `"prompt": "` + long + `"}`, "prompt", "your prompt resulted in at least 1024 tokens"},
		{"a text that leaves no room", texts, demo + `"prompt": "` + long[:1023] + `"}`, "prompt",
			"your prompt resulted in at least 1024 tokens"},
		{"tokens", texts, demo + `"prompt": [1` + strings.Repeat(", 1", 1023) + `]}`, "prompt",
			"your prompt resulted in 1024 tokens"},
		{"the second text", texts, demo + `"prompt": ["x", "` + long + `"]}`, "prompt", "your prompt resulted in at least 1024 tokens"},
		{"beams", texts, demo + `"use_beam_search": true, "prompt": "` + long + `"}`, "prompt",
			"your prompt resulted in at least 1024 tokens"},
		{"a chat", chats, demo + `"messages": [{"role": "user", "content": "` + long + `"}]}`, "messages",
			"your messages resulted in at least 1024 tokens"},
		{"beams of a chat", chats,
			demo + `"use_beam_search": true, "messages": [{"role": "user", "content": "` + long + `"}]}`, "messages",
			"your messages resulted in at least 1024 tokens"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := s.ask(t, test.path, test.body)
			require.Equal(t, 400, a.Status, a.Text)
			require.Equal(t, "invalid_request_error", a.Error.Type)
			require.Equal(t, "context_length_exceeded", a.Error.Code)
			require.Equal(t, test.param, a.Error.Param)
			require.Equal(t, "This model's maximum context length is 1024 tokens. However, "+test.says+
				", and an answer needs at least 1. Please reduce the length of the "+test.param+".", a.Error.Message)
		})
	}
	a := s.ask(t, texts, demo+`"prompt": "`+long[:1022]+`"}`)
	require.Equal(t, 200, a.Status, a.Text)
	require.Equal(t, 1, a.Usage.Completion)
}
