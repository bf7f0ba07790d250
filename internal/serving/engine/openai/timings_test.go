package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

// timingsIn returns the timings in a body, or nil if the body has none.
func timingsIn(t *testing.T, body string) map[string]float64 {
	var b struct{ Timings map[string]float64 }
	require.NoError(t, json.Unmarshal([]byte(body), &b), body)
	return b.Timings
}

// Ensure that if a client asks for llama.cpp's timings, it gets them with the answer and with each chunk of a stream.
func TestTimingsAreThoseOfLlamaCpp(t *testing.T) {
	s := start(t, nil)
	const fields = demo + `"prompt": "1234567812345678", "max_tokens": 5, "ignore_eos": true, `
	for _, extra := range []string{`"n": 1}`, `"timings_per_token": false}`} {
		require.Nil(t, timingsIn(t, s.ask(t, texts, fields+extra).Text))
	}
	got := timingsIn(t, s.ask(t, texts, fields+`"timings_per_token": true}`).Text)
	require.Len(t, got, 9)
	require.EqualValues(t, 16, got["cache_n"], "a block")
	require.EqualValues(t, 17-16, got["prompt_n"])
	require.EqualValues(t, 5, got["predicted_n"])
	for _, kind := range []string{"prompt", "predicted"} {
		require.InDelta(t, got[kind+"_ms"], got[kind+"_per_token_ms"]*got[kind+"_n"], 1e-9)
		require.InDelta(t, 1000*got[kind+"_n"], got[kind+"_per_second"]*got[kind+"_ms"], 1e-6)
	}
	for path, begin := range map[string]string{texts: fields,
		chats: demo + `"messages": [{"role": "user", "content": "x"}], "max_tokens": 5, "ignore_eos": true, `} {
		a := s.ask(t, path, begin+`"stream": true, "timings_per_token": true}`)
		made := 0.0
		for line := range strings.Lines(a.Text) {
			body, ok := strings.CutPrefix(line, "data: {")
			if !ok || strings.Contains(body, `"role":"assistant"`) { // the first chunk of a chat has no token
				continue
			}
			got := timingsIn(t, "{"+body)
			require.Positive(t, got["predicted_n"], line)
			require.GreaterOrEqual(t, got["predicted_n"], made, line)
			made = got["predicted_n"]
		}
		require.EqualValues(t, 5, made, path)
	}
	a := s.ask(t, texts, fields+`"timings_per_token": true, "use_beam_search": true}`)
	require.Equal(t, "timings_per_token", a.Error.Param)
}

// Ensure that the times of a stream count only the prompts that have been started, while others wait in the queue.
func TestTimingsLeaveOutPromptsThatWait(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.MaxNumSeqs = 1 })
	a := s.ask(t, texts, demo+`"prompt": ["1", "2", "3"], "max_tokens": 3, "ignore_eos": true, "stream": true, "timings_per_token": true}`)
	chunks := 0
	for line := range strings.Lines(a.Text) {
		if body, ok := strings.CutPrefix(line, "data: {"); ok {
			got := timingsIn(t, "{"+body)
			require.Less(t, got["predicted_ms"], 1e9, line)
			require.NotZero(t, got["prompt_ms"], line)
			chunks++
		}
	}
	require.Equal(t, 9, chunks)
}
