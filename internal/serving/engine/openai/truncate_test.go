package openai_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// Ensure that truncate_prompt_tokens keeps the last tokens of a prompt. The prompt may be a text, tokens or messages.
func TestTheLastTokensOfAPromptAreKept(t *testing.T) {
	level.SkipNormal(t)
	s := start(t, nil)
	long := strings.Repeat("abcd", 600) // longer than the model's 1,024 tokens
	tail := func(text string, n int) []int32 { return bytesOf(text[len(text)-n:]) }
	for _, test := range []struct {
		name, path, fields string
		want               []int32
	}{
		{"a text", texts, `"prompt": "` + long + `", "truncate_prompt_tokens": 6`, bytesOf("cdabcd")},
		{"tokens", texts, `"prompt": [97, 98, 99, 100], "truncate_prompt_tokens": 2`, bytesOf("cd")},
		{"a short text", texts, `"prompt": "abc", "truncate_prompt_tokens": 6`, bytesOf("\x01abc")},
		{"room for max_tokens", texts, `"prompt": "` + long + `", "truncate_prompt_tokens": -1, "max_tokens": 24`, tail(long, 1000)},
		{"room for the default", texts, `"prompt": "` + long + `", "truncate_prompt_tokens": -1`, tail(long, 1008)},
		{"room for one", texts, `"prompt": "` + long + `", "truncate_prompt_tokens": -1, "max_tokens": 5000`, tail(long, 1023)},
		{"messages", chats, `"messages": [{"role": "user", "content": "` + long + `"}], "truncate_prompt_tokens": 4, "max_tokens": 3`,
			bytesOf("cd\x03\x02")},
		{"room in a chat", chats, `"messages": [{"role": "user", "content": "` + long + `"}], "truncate_prompt_tokens": -1`,
			tail(long+"\x03\x02", 1023)},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, how := range []string{``, `, "stream": true`, `, "n": 2`, `, "use_beam_search": true`} {
				a := s.ask(t, test.path, demo+test.fields+`, "temperature": 0, "return_token_ids": true`+how+"}")
				require.Equal(t, 200, a.Status, a.Text)
				got := a.PromptTokenIDs
				if test.path == texts {
					got = a.Choices[0].PromptTokenIDs
				}
				require.Equal(t, test.want, got)
			}
			if !strings.Contains(test.fields, `"prompt": [`) && !strings.Contains(test.fields, "-1") {
				require.Equal(t, test.want, s.ask(t, "/tokenize", demo+test.fields+"}").Tokens)
			}
		})
	}
	a := s.ask(t, texts, fmt.Sprintf(demo+`"prompt": %q, "truncate_prompt_tokens": 6, "max_tokens": 2, "temperature": 0, `+
		`"echo": true, "logprobs": 0}`, long))
	require.Equal(t, "cdabcdab", a.Choices[0].Text, "the tokens that are kept")
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, a.Choices[0].Logprobs.Offsets)
	require.Equal(t, 6, a.Usage.Prompt)
}
