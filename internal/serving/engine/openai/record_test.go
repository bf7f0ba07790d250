package openai_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/engine/pooling"
)

// Ensure that each request is recorded once, at its end, with its tokens, and with the reason if it
// was refused or failed.
func TestEachRequestIsRecorded(t *testing.T) {
	var mu sync.Mutex
	var records []openai.Record
	s := start(t, func(o *openai.Config, _ *engine.Config) {
		o.APIKeys, o.Pooling = []string{"secret"}, &openai.Pooling{Type: pooling.Last}
		o.Record = func(r openai.Record) {
			mu.Lock()
			defer mu.Unlock()
			records = append(records, r)
		}
	})
	const two = `"max_tokens": 2, "ignore_eos": true, `
	for _, test := range []struct {
		name, method, path, body, key string
		want                          openai.Record
	}{
		{"a completion", "POST", texts, demo + two + `"prompt": "12345678"}`, "secret",
			openai.Record{Path: texts, Status: 200, PromptTokens: 9, GenerationTokens: 2}},
		{"a stream", "POST", texts, demo + two + `"prompt": "12345678", "stream": true}`, "secret",
			openai.Record{Path: texts, Status: 200, PromptTokens: 9, GenerationTokens: 2}},
		{"beams", "POST", texts, demo + two + `"prompt": "12345678", "use_beam_search": true}`, "secret",
			openai.Record{Path: texts, Status: 200, PromptTokens: 9, GenerationTokens: 2}},
		{"a bad value", "POST", texts, demo + `"prompt": "1", "n": 0}`, "secret",
			openai.Record{Path: texts, Status: 400, Reason: "n is 0; it must be at least 1."}},
		{"vectors", "POST", "/v1/embeddings", demo + `"input": ["12345678", "1"]}`, "secret",
			openai.Record{Path: "/v1/embeddings", Status: 200, PromptTokens: 11}},
		{"no key", "GET", "/v1/models", "", "", openai.Record{Path: "/v1/models", Status: 401,
			Reason: "The API key is missing or wrong; it goes into the header Authorization: Bearer KEY, or X-Api-Key: KEY."}},
		{"a path with a line feed", "GET", "/%0Ahealth", "", "secret", openai.Record{Path: "/%0Ahealth", Status: 404}},
		{"one that has no answer", "GET", "/health", "", "", openai.Record{Path: "/health", Status: 200}},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := time.Now()
			_, a := s.roundTrip(t, test.method, test.path, test.body, "Authorization", "Bearer "+test.key)
			require.EventuallyWithT(t, func(c *assert.CollectT) { // the record follows the answer
				mu.Lock()
				defer mu.Unlock()
				assert.Len(c, records, 1)
			}, 10*time.Minute, time.Millisecond)
			got := records[0]
			records = nil
			require.Equal(t, test.want.Status, a.Status)
			require.Equal(t, test.want.Status >= 400, got.Refused())
			require.True(t, strings.HasPrefix(got.Client, "127.0.0.1:"), got.Client)
			require.False(t, got.Begin.Before(before.Round(0)))
			require.Positive(t, got.Elapsed)
			if test.want.Reason == "" {
				test.want.Reason = a.Error.Message
			}
			test.want.Method, test.want.Client, test.want.Begin, test.want.Elapsed = test.method, got.Client, got.Begin, got.Elapsed
			require.Equal(t, test.want, got)
		})
	}
}

// Ensure that /health returns an error if the engine has work and finishes no step, and succeeds again after the next
// step. Without work it succeeds, however long ago the last step was.
func TestAServerWhoseEngineIsStuckIsNotWell(t *testing.T) {
	s, release := held(t, func(o *openai.Config) { o.IterationTimeout = 1 })
	well := func() (int, string) {
		_, a := s.roundTrip(t, "GET", "/health", "")
		return a.Status, a.Error.Message
	}
	status, _ := well()
	require.Equal(t, 200, status)
	a := s.open(t, texts, demo+`"prompt": "`+strings.Repeat("x", 40)+`", "max_tokens": 2, "stream": true}`)
	defer a.Body.Close()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		status, message := well()
		assert.Equal(c, 503, status)
		assert.Contains(c, message, "The engine has not finished a step for")
	}, 10*time.Minute, time.Millisecond)
	release()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		status, _ := well()
		assert.Equal(c, 200, status)
	}, 10*time.Minute, time.Millisecond)
}
