package openai_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
	"llmmemory/internal/engine/openai"
)

// send posts a completion of 9 tokens of prompt.
func send(t *testing.T, s *served, key, most string) *http.Response {
	r, err := http.NewRequest("POST", s.url+"/v1/completions", strings.NewReader(`{"model": "demo", "prompt": "12345678", "max_tokens": `+most+`}`))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer
}

func TestEachKeyHasItsRate(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) {
		c.APIKeys, c.Limits = []string{"a", "b"}, openai.Limits{Requests: 1, Tokens: 100}
	})
	first := send(t, s, "a", "1")
	require.Equal(t, 200, first.StatusCode)
	for name, want := range map[string]string{"Limit-Requests": "1", "Remaining-Requests": "0", "Limit-Tokens": "100", "Remaining-Tokens": "90"} {
		require.Equal(t, want, first.Header.Get("X-Ratelimit-"+name), name)
	}
	require.Equal(t, 400, send(t, s, "a", "900").StatusCode, "more tokens than there ever are")
	refused := send(t, s, "a", "1")
	for refused.StatusCode == 200 { // a minute has passed
		refused = send(t, s, "a", "1")
	}
	require.Equal(t, 429, refused.StatusCode)
	require.NotEmpty(t, refused.Header.Get("Retry-After"))
	require.Equal(t, 200, send(t, s, "b", "1").StatusCode, "another key")
	require.Equal(t, 401, send(t, s, "c", "1").StatusCode)
}

// More prompts than may run and wait would be refused however often the client tried again, so the answer is not 429.
func TestPromptsThatTheQueueNeverHoldsAreRefusedForGood(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.MaxNumSeqs, c.MaxWaiting = 1, 2 })
	r, e := s.send(t, "POST", "/v1/completions", "application/json", `{"model": "demo", "prompt": ["a", "b", "c", "d"], "max_tokens": 1}`)
	require.Equal(t, 400, r.StatusCode)
	require.Equal(t, "There are 4 prompts; at most 3 can run or wait (--max-num-seqs and --max-waiting).", e["message"])
	for _, body := range []string{
		`{"model": "demo", "prompt": ["a", "b", "c"], "max_tokens": 1}`,
		`{"model": "demo", "prompt": ["a", "b", "c", "d"], "max_tokens": 1, "use_beam_search": true}`, // one prompt after the other
	} {
		r, _ = s.send(t, "POST", "/v1/completions", "application/json", body)
		require.Equal(t, 200, r.StatusCode, body)
	}
}
