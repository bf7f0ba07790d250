package openai_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// bytesOf returns the tokens of a text without special tokens.
func bytesOf(text string) (ids []int32) {
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return ids
}

// Ensure that each answer returns the tokens of the prompt once. A stream returns the same answer tokens as a whole
// answer. A part of a stream can have tokens without text, or a text with several tokens.
func TestTheTokensOfPromptsAndAnswersAreReturned(t *testing.T) {
	level.SkipNormal(t)
	const door = "The code is 47ñ1. The"
	prompts := [][]int32{bytesOf("\x01" + door), bytesOf("\x01x" + door)}
	answer := bytesOf(" code is 47ñ1.")
	for name, change := range servers {
		t.Run(name, func(t *testing.T) {
			s := start(t, change)
			for _, more := range []string{``, `, "stop": "1."`, `, "stop": "1.", "include_stop_str_in_output": true`,
				`, "echo": true`, `, "echo": true, "logprobs": 1`, `, "stop_token_ids": [46]`} {
				for how, n := range map[string]int{``: 1, `, "stream": true`: 1, `, "n": 3`: 3, `, "n": 3, "stream": true`: 3,
					`, "best_of": 2`: 1, `, "stream": true, "stream_options": {"include_usage": true}`: 1} {
					body := fmt.Sprintf(demo+`"prompt": [%q, %q], "temperature": 0, "max_tokens": %d, "return_token_ids": true%s%s}`,
						door, "x"+door, len(answer), more, how)
					for i, c := range s.answers(t, texts, body) {
						require.Equal(t, prompts[i/n], c.PromptTokenIDs, body)
						require.Equal(t, answer, c.TokenIDs, body)
					}
				}
			}
			settle(t, s)
		})
	}
}

func TestTheTokensOfAChatAreReturned(t *testing.T) {
	s := start(t, nil)
	prompt := []int32{1, 2, 'H', 'i', 3, 2}
	for how, times := range map[string]int{``: 1, `, "n": 2`: 1, `, "stream": true`: 1, `, "stream": true, "n": 2`: 2,
		`, "use_beam_search": true`: 1} {
		body := demo + `"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 4, "return_token_ids": true` + how + "}"
		a := s.ask(t, chats, body)
		var want []int32
		for range times { // once in a whole answer, and once for each answer of a stream
			want = append(want, prompt...)
		}
		require.Equal(t, want, a.PromptTokenIDs, body)
		for _, c := range s.answers(t, chats, body) {
			require.Equal(t, []int32{'H', 'i', 3}, c.TokenIDs, body)
			require.Empty(t, c.PromptTokenIDs, body)
		}
	}
	a := s.ask(t, chats, talk+`"return_token_ids": false}`)
	require.NotContains(t, a.Text, "token_ids")
}

func TestAPromptAloneHasNoTokensOfAnAnswer(t *testing.T) {
	s := start(t, nil)
	a := s.ask(t, texts, demo+`"prompt": "ab", "echo": true, "max_tokens": 0, "return_token_ids": true}`)
	require.Equal(t, []int32{1, 'a', 'b'}, a.Choices[0].PromptTokenIDs)
	require.Contains(t, a.Text, `"token_ids":[]`)
}
