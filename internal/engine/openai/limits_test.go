package openai_test

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
	"llmmemory/internal/engine/openai"
)

// send posts a completion of 9 tokens of prompt.
func send(t *testing.T, s *served, key, most string) *http.Response {
	r, err := http.NewRequest("POST", s.url+"/v1/completions",
		strings.NewReader(`{"model": "demo", "prompt": "12345678", "max_tokens": `+most+`}`))
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
	for name, want := range map[string]string{"Limit-Requests": "1", "Remaining-Requests": "0", "Limit-Tokens": "100",
		"Remaining-Tokens": "90"} {
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
	r, e := s.send(t, "POST", "/v1/completions", "application/json",
		`{"model": "demo", "prompt": ["a", "b", "c", "d"], "max_tokens": 1}`)
	require.Equal(t, 400, r.StatusCode)
	require.Equal(t, "There are 4 prompts; at most 3 can run or wait (--max-num-seqs and --max-waiting).", e["message"])
	for _, body := range []string{
		`{"model": "demo", "prompt": ["a", "b", "c"], "max_tokens": 1}`,
		// one prompt after the other
		`{"model": "demo", "prompt": ["a", "b", "c", "d"], "max_tokens": 1, "use_beam_search": true}`,
	} {
		r, _ = s.send(t, "POST", "/v1/completions", "application/json", body)
		require.Equal(t, 200, r.StatusCode, body)
	}
}

// left posts a body with key "a" and returns the status, the parameter that the error names, and the rest of the
// key's allowance as the answer's headers have it, -1 without them.
func (s *served) left(t *testing.T, path, body string) (status int, param any, requests, tokens int) {
	r, err := http.NewRequest("POST", s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer a")
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer got.Body.Close()
	var answer struct{ Error map[string]any }
	require.NoError(t, json.NewDecoder(got.Body).Decode(&answer))
	requests, tokens = -1, -1
	for name, to := range map[string]*int{"Requests": &requests, "Tokens": &tokens} {
		if value := got.Header.Get("X-Ratelimit-Remaining-" + name); value != "" {
			*to, err = strconv.Atoi(value)
			require.NoError(t, err)
		}
	}
	return got.StatusCode, answer.Error["param"], requests, tokens
}

const (
	limitTokens = 6000                                                       // 100 come back in a second
	tenTokens   = `{"model": "demo", "prompt": "12345678", "max_tokens": 1}` // 9 of the prompt and 1 of the answer
)

func limited(c *openai.Config, _ *engine.Config) {
	c.APIKeys, c.Limits = []string{"a"}, openai.Limits{Requests: 60, Tokens: limitTokens}
}

// Numbers of a request that are out of range neither overflow nor refill the allowance of its key.
func TestNoRequestRefillsItsKey(t *testing.T) {
	const text, talk = `{"model": "demo", "prompt": "12345678", `,
		`{"model": "demo", "messages": [{"role": "user", "content": "x"}], `
	for _, test := range []struct{ name, path, body, param string }{
		{"n whose product overflows", "completions", text + `"n": 4611686018427387904, "max_tokens": 2}`, "n"},
		{"n of a chat", "chat/completions", talk + `"n": 4611686018427387904, "max_tokens": 2}`, "n"},
		{"n of beams", "completions", text + `"n": 4611686018427387904, "max_tokens": 2, "use_beam_search": true}`, "n"},
		{"best_of", "completions", text + `"best_of": 4611686018427387904, "max_tokens": 2}`, "best_of"},
		{"the least n", "completions", text + `"n": -9223372036854775808}`, "n"},
		{"the least max_tokens", "completions", text + `"max_tokens": -9223372036854775808}`, "max_tokens"},
		{"the least max_tokens of an echo", "completions", text + `"echo": true, "max_tokens": -9223372036854775808}`,
			"max_tokens"},
		{"the least max_completion_tokens", "chat/completions", talk + `"max_completion_tokens": -9223372036854775808}`,
			"max_completion_tokens"},
		{"the largest min_tokens", "completions", text + `"min_tokens": 9223372036854775807}`, "min_tokens"},
		{"the largest top_k", "completions", text + `"top_k": 9223372036854775807}`, "top_k"},
		{"the largest logprobs", "completions", text + `"logprobs": 9223372036854775807}`, "logprobs"},
		{"the largest top_logprobs", "chat/completions", talk + `"logprobs": true, "top_logprobs": 9223372036854775807}`,
			"top_logprobs"},
		{"a priority", "completions", text + `"priority": -9223372036854775808}`, "priority"},
		{"tokens of a prompt", "completions", `{"model": "demo", "prompt": [2147483647]}`, "prompt"},
		{"a length penalty whose power is infinite", "completions", text +
			`"use_beam_search": true, "length_penalty": 1e308}`, "length_penalty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, limited)
			begin := time.Now()
			status, _, _, before := s.left(t, "/v1/completions", text+
				`"max_tokens": 1000, "logit_bias": {"120": 100}, "stop": "x"}`)
			require.Equal(t, 200, status)
			status, param, _, _ := s.left(t, "/v1/"+test.path, test.body)
			require.Equal(t, 400, status)
			require.Equal(t, test.param, param)
			status, _, _, after := s.left(t, "/v1/completions", tenTokens)
			require.Equal(t, 200, status)
			back := time.Since(begin).Seconds() * limitTokens / 60
			require.LessOrEqual(t, float64(after), float64(before)+back-10+1)
			require.GreaterOrEqual(t, after, before-10-1, "the request that was refused was charged")
		})
	}
}

// A request that is not served costs its key nothing.
func TestARefusedRequestIsNotCharged(t *testing.T) {
	many := func(n int) string { return strings.Repeat(`"x", `, n-1) + `"x"` }
	const text = `{"model": "demo", "prompt": "12345678", `
	for _, test := range []struct {
		name, body string
		status     int
	}{
		{"a bad value", text + `"max_tokens": 500, "temperature": 9}`, 400},
		{"a token that there is not", text + `"max_tokens": 500, "stop_token_ids": [100000]}`, 400},
		{"the second prompt is too long", `{"model": "demo", "max_tokens": 500, "prompt": ["x", "` +
			strings.Repeat("x", 2000) + `"]}`, 400},
		{"a prompt of beams that is too long", `{"model": "demo", "max_tokens": 2, "use_beam_search": true, "prompt": "` +
			strings.Repeat("x", 2000) + `"}`, 400},
		{"too many prompts", `{"model": "demo", "max_tokens": 1, "prompt": [` + many(129) + `]}`, 400},
		{"more tokens than a minute has", text + `"max_tokens": 900, "n": 100}`, 400},
		{"the server stops", text + `"max_tokens": 500}`, 503},
		{"the server stops before beams", text + `"max_tokens": 500, "use_beam_search": true}`, 503},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := start(t, limited)
			status, _, requests, tokens := s.left(t, "/v1/completions", tenTokens)
			require.Equal(t, 200, status)
			if test.status == 503 {
				require.NoError(t, s.engine.Close())
			}
			status, _, nowRequests, nowTokens := s.left(t, "/v1/completions", test.body)
			require.Equal(t, test.status, status)
			if nowTokens < 0 { // the answer does not say; the next one does
				_, _, nowRequests, nowTokens = s.left(t, "/v1/completions", tenTokens)
				nowRequests, nowTokens = nowRequests+1, nowTokens+10
			}
			require.GreaterOrEqual(t, nowRequests, requests)
			require.GreaterOrEqual(t, nowTokens, tokens-1, "less a part of a token")
		})
	}
}

func TestARequestThatFindsTheQueueFullIsNotCharged(t *testing.T) {
	s := start(t, func(o *openai.Config, c *engine.Config) {
		limited(o, c)
		o.Limits.Tokens = 600_000
		c.MaxNumSeqs, c.MaxWaiting, c.MaxModelLen, c.KVCacheBytes = 1, 1, 4096, 64<<20
	})
	const body = `{"model": "demo", "prompt": "12345678", "max_tokens": 4000, "ignore_eos": true`
	var answers []*http.Response
	t.Cleanup(func() {
		for _, a := range answers {
			_ = a.Body.Close() // before its end, which cancels the request
		}
	})
	for range 2 { // one runs and one waits
		r, err := http.NewRequest("POST", s.url+"/v1/completions", strings.NewReader(body+`, "stream": true}`))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer a")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.Equal(t, 200, answer.StatusCode)
		answers = append(answers, answer)
	}
	before, err := strconv.Atoi(answers[1].Header.Get("X-Ratelimit-Remaining-Tokens"))
	require.NoError(t, err)
	for _, more := range []string{"}", `, "use_beam_search": true}`} {
		status, _, requests, tokens := s.left(t, "/v1/completions", body+more)
		require.Equal(t, 429, status)
		require.GreaterOrEqual(t, requests, 58)
		require.GreaterOrEqual(t, tokens, before-1)
	}
}
