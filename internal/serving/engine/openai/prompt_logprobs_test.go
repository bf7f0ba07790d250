package openai_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A promptLogprob is vLLM's.
type promptLogprob struct {
	Logprob float64
	Rank    int
	Decoded string `json:"decoded_token"`
}

type withPrompt struct {
	Logprobs []map[string]promptLogprob `json:"prompt_logprobs"`
	Choices  []struct {
		Logprobs []map[string]promptLogprob `json:"prompt_logprobs"`
	}
}

// Ensure that prompt_logprobs has the same log probabilities as logprobs with echo. The rank of a token must be 1
// plus the number of more likely tokens. The log probabilities and ranks must be right in each answer to a request,
// with prefix hits and without.
func TestPromptLogprobsAreThoseOfEchoWithRanks(t *testing.T) {
	const text = "abc abc"
	prompt := bytesOf("\x01" + text)
	for name, change := range servers {
		t.Run(name, func(t *testing.T) {
			s := start(t, change)
			const begin = demo + `"prompt": "` + text + `", "max_tokens": 2, "temperature": 0`
			echo := s.ask(t, texts, begin+`, "echo": true, "logprobs": 3}`).Choices[0].Logprobs
			for _, more := range []string{``, `, "n": 2`, `, "n": 2, "best_of": 3`, `, "logprobs": 1`, `, "echo": true`,
				`, "echo": true, "logprobs": 1`, `, "echo": true, "logprobs": 5`} {
				body := begin + `, "prompt_logprobs": 3` + more + "}"
				a, got := s.ask(t, texts, body), withPrompt{}
				require.Equal(t, 200, a.Status, a.Text)
				require.NoError(t, json.Unmarshal([]byte(a.Text), &got))
				require.Empty(t, got.Logprobs, "it is in the choices")
				for i, c := range got.Choices {
					require.Len(t, c.Logprobs, len(prompt), body)
					require.Nil(t, c.Logprobs[0])
					for k, token := range prompt[1:] {
						entries := c.Logprobs[k+1]
						own := entries[strconv.Itoa(int(token))]
						require.Equal(t, string(rune(token)), own.Decoded)
						require.Equal(t, *echo.Values[k+1], own.Logprob)
						require.Contains(t, []int{3, 4}, len(entries), "three, and the token itself")
						likely := s.next(t, prompt[:k+1], 20)
						for n, l := range likely {
							if e, ok := entries[strconv.Itoa(int(l.Token))]; ok {
								require.Equal(t, n+1, e.Rank, "token %d in place %d", l.Token, k+1)
								require.InDelta(t, l.Value, e.Logprob, 1e-5)
							} else {
								require.GreaterOrEqual(t, n, 3, "%d of the most likely tokens is missing", n)
							}
						}
					}
					switch l := a.Choices[i].Logprobs; {
					case strings.Contains(more, `"echo": true, "logprobs": 1`):
						require.Len(t, l.Tokens, len(prompt)+2)
						require.LessOrEqual(t, len(l.Top[3]), 2)
					case strings.Contains(more, `"logprobs": 1`):
						require.Len(t, l.Tokens, 2, "the answer alone")
					}
				}
			}
			settle(t, s)
		})
	}
}

func TestPromptLogprobsOfAChatAreBesideTheChoices(t *testing.T) {
	s := start(t, nil)
	a, got := s.ask(t, chats, talk+`"prompt_logprobs": 0, "n": 2}`), withPrompt{}
	require.NoError(t, json.Unmarshal([]byte(a.Text), &got), a.Text)
	require.Len(t, got.Logprobs, len(bytesOf("\x01\x02x\x03\x02")))
	require.Nil(t, got.Logprobs[0])
	for i, token := range bytesOf("\x02x\x03\x02") {
		require.Len(t, got.Logprobs[i+1], 1, "the token itself")
		require.Contains(t, got.Logprobs[i+1], strconv.Itoa(int(token)))
	}
	for _, c := range got.Choices {
		require.Nil(t, c.Logprobs)
	}
}
