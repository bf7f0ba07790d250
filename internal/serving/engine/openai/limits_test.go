package openai_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

// withKey is the header of a key.
func withKey(key string) []string { return []string{"Authorization", "Bearer " + key} }

func TestEachKeyHasItsRate(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) {
		c.APIKeys, c.Limits = []string{"a", "b"}, openai.Limits{Requests: 1, Tokens: 100}
	})
	ask := func(key, maxTokens string) *reply {
		return s.ask(t, texts, demo+`"prompt": "12345678", "max_tokens": `+maxTokens+"}", withKey(key)...)
	}
	first := ask("a", "1")
	require.Equal(t, 200, first.Status)
	for name, want := range map[string]string{"Limit-Requests": "1", "Remaining-Requests": "0", "Limit-Tokens": "100",
		"Remaining-Tokens": "90"} {
		require.Equal(t, want, first.Header.Get("X-Ratelimit-"+name), name)
	}
	require.Equal(t, 400, ask("b", "900").Status, "more tokens than there ever are")
	refused := ask("a", "1")
	for refused.Status == 200 { // a minute has passed
		refused = ask("a", "1")
	}
	require.Equal(t, 429, refused.Status)
	require.NotEmpty(t, refused.Header.Get("Retry-After"))
	require.Equal(t, 200, ask("b", "1").Status, "another key")
	require.Equal(t, 401, ask("c", "1").Status)
}

// Ensure that a refused request does not count towards the rate limit of its API key. If a number in a refused
// request is negative or so large that it overflows, the key must not get a larger allowance.
func TestARefusedRequestDoesNotCountTowardsTheRateLimit(t *testing.T) {
	const perMinute = 6000
	limited := func(c *openai.Config, _ *engine.Config) {
		c.APIKeys, c.Limits = []string{"a"}, openai.Limits{Requests: 600, Tokens: perMinute}
	}
	const prompt = demo + `"prompt": "12345678", "max_tokens": 500, `
	long := `"prompt": "` + strings.Repeat("x", 2000) + `"}`
	// requireKept sends a request between two others of 10 tokens each. It requires that the request is refused and
	// does not change the allowance. It calls prepare before it sends the request.
	requireKept := func(s *served, status int, path, body string, prepare func()) {
		begin := time.Now()
		before := s.ask(t, texts, text+`"n": 1}`, withKey("a")...)
		require.Equal(t, 200, before.Status)
		if prepare != nil {
			prepare()
		}
		refused := s.ask(t, path, body, withKey("a")...)
		require.Equal(t, status, refused.Status, "%.100s: %s", body, refused.Text)
		after := s.ask(t, texts, text+`"n": 1}`, withKey("a")...)
		refill := int(time.Since(begin).Seconds()*perMinute/60) + 1
		require.GreaterOrEqual(t, after.Left(t, "Requests"), before.Left(t, "Requests")-1, "%.100s", body)
		require.GreaterOrEqual(t, after.Left(t, "Tokens"), before.Left(t, "Tokens")-11, "%.100s", body)
		require.LessOrEqual(t, after.Left(t, "Tokens"), before.Left(t, "Tokens")-10+refill, "%.100s", body)
	}
	s := start(t, limited)
	used := s.ask(t, texts, demo+`"prompt": "1", "max_tokens": 1000, "n": 5, "logit_bias": {"120": 100}, "stop": "x"}`,
		withKey("a")...)
	require.Equal(t, 200, used.Status)
	for _, test := range []struct{ path, body string }{
		{texts, prompt + `"n": 4611686018427387904}`}, // the product with max_tokens overflows
		{texts, prompt + `"n": 4611686018427387904, "use_beam_search": true}`},
		{texts, prompt + `"best_of": 4611686018427387904}`},
		{texts, prompt + `"n": -9223372036854775808}`},
		{texts, prompt + `"max_tokens": -9223372036854775808}`},
		{chats, talk + `"max_completion_tokens": -9223372036854775808}`},
		{texts, prompt + `"temperature": 9}`},
		{texts, prompt + `"stop_token_ids": [100000]}`},
		{texts, demo + `"max_tokens": 500, "prompt": ["x", ` + strings.TrimPrefix(strings.TrimSuffix(long, "}"),
			`"prompt": `) + "]}"},
		{texts, demo + `"max_tokens": 2, "use_beam_search": true, ` + long},
		{texts, demo + `"max_tokens": 1, "prompt": ` + many(129) + "}"},
		{texts, prompt + `"n": 100}`}, // more tokens than a minute has
	} {
		requireKept(s, 400, test.path, test.body, nil)
	}
	for _, more := range []string{`"n": 1}`, `"use_beam_search": true}`} {
		s := start(t, limited)
		before := s.ask(t, texts, text+`"n": 1}`, withKey("a")...)
		require.NoError(t, s.engine.Close())
		refused := s.ask(t, texts, prompt+more, withKey("a")...)
		require.Equal(t, 503, refused.Status)
		require.GreaterOrEqual(t, refused.Left(t, "Requests"), before.Left(t, "Requests"))
		require.GreaterOrEqual(t, refused.Left(t, "Tokens"), before.Left(t, "Tokens")-1)
	}
}

// Ensure that a request is refused if the queue is full. The refused request must not reduce the allowance of its key.
// If a request has more prompts than may run and wait together, it can never succeed, so it must get status 400.
func TestAFullQueueRefusesRequests(t *testing.T) {
	s := start(t, func(o *openai.Config, c *engine.Config) {
		o.APIKeys, o.Limits = []string{"a"}, openai.Limits{Requests: 60, Tokens: 600_000}
		c.MaxNumSeqs, c.MaxWaiting, c.MaxModelLen, c.KVCacheBytes = 1, 2, 4096, 64<<20
	})
	for _, more := range []string{"}", `, "use_beam_search": true}`} {
		a := s.ask(t, texts, demo+`"max_tokens": 1, "prompt": `+many(3)+more, withKey("a")...)
		require.Equal(t, 200, a.Status, a.Text)
		too := s.ask(t, texts, demo+`"max_tokens": 1, "prompt": `+many(4)+more, withKey("a")...)
		require.Equal(t, 400, too.Status)
		require.Equal(t, "There are 4 prompts; at most 3 are possible.", too.Error.Message)
	}
	a := s.ask(t, texts, demo+`"max_tokens": 1, "n": 2, "prompt": `+many(2)+"}", withKey("a")...)
	require.Equal(t, 200, a.Status, a.Text)
	too := s.ask(t, texts, demo+`"max_tokens": 1, "n": 2, "prompt": `+many(3)+"}", withKey("a")...)
	require.Equal(t, 400, too.Status)
	require.Equal(t, "There are 3 prompts; at most 2 are possible.", too.Error.Message)
	const body = demo + `"prompt": "12345678", "max_tokens": 4000, "ignore_eos": true`
	var last *http.Response
	for i := range 3 { // one runs and two wait
		if i == 2 { // the first of two prompts gives its place back
			two := s.ask(t, texts, demo+`"max_tokens": 1, "prompt": ["x", "x"]}`, withKey("a")...)
			require.Equal(t, 429, two.Status)
		}
		last = s.open(t, texts, body+`, "stream": true}`, withKey("a")...)
		require.Equal(t, 200, last.StatusCode)
		defer last.Body.Close() // before its end, which cancels the request
	}
	before := (&reply{Header: last.Header}).Left(t, "Tokens")
	for _, more := range []string{"}", `, "stream": true}`, `, "use_beam_search": true}`} {
		a := s.ask(t, texts, body+more, withKey("a")...)
		require.Equal(t, 429, a.Status)
		require.Equal(t, "1", a.Header.Get("Retry-After"))
		require.GreaterOrEqual(t, a.Left(t, "Requests"), 53)
		require.GreaterOrEqual(t, a.Left(t, "Tokens"), before-1)
	}
}
