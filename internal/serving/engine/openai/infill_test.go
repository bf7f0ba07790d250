package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

// An infilled is an answer of /infill.
type infilled struct {
	Content, Model string
	Stop           bool
	StopType       string `json:"stop_type"`
	Predicted      int    `json:"tokens_predicted"`
	Evaluated      int    `json:"tokens_evaluated"`
	Cached         int    `json:"tokens_cached"`
	Timings        struct {
		Prompt int `json:"prompt_n"`
		Cache  int `json:"cache_n"`
	}
}

func readInfilled(t *testing.T, text string) (a infilled) {
	require.NoError(t, json.Unmarshal([]byte(text), &a), text)
	return a
}

// This test sends what llama.vim sends. The model continues a text as after an earlier occurrence of its last bytes.
func TestAnEditorFillsInTheMiddle(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.Tokenizer = withMarks(t) })
	const editor = `"input_prefix": "abc123 ", "input_suffix": "z", "prompt": "abc", "n_indent": 2, "top_k": 40, "top_p": 0.9, ` +
		`"samplers": ["top_k", "top_p", "infill"], "cache_prompt": true, "t_max_prompt_ms": 500, "t_max_predict_ms": 1000, "id_slot": 0, ` +
		`"temperature": 0, `
	a := s.ask(t, "/infill", `{`+editor+`"stream": false, "n_predict": 3}`)
	require.Equal(t, 200, a.Status, a.Text)
	got := readInfilled(t, a.Text)
	plain := s.ask(t, texts, demo+`"prompt": "abc123 abc", "suffix": "z", "max_tokens": 3, "temperature": 0}`)
	require.Equal(t, plain.Choices[0].Text, got.Content, "as suffix of completions")
	require.Equal(t, infilled{Content: got.Content, Model: "demo", Stop: true, StopType: "limit", Predicted: 3,
		Evaluated: plain.Usage.Prompt, Cached: plain.Usage.Prompt + 3, Timings: got.Timings}, got)

	a = s.ask(t, "/infill", `{`+editor+`"n_predict": 3, "response_fields": ["content", "timings/prompt_n", "tokens_cached", "x", "content/x"]}`)
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.Text), &fields))
	require.Len(t, fields, 3, a.Text)
	require.Equal(t, got.Content, fields["content"])
	require.Contains(t, fields, "timings/prompt_n")

	a = s.ask(t, "/infill", `{`+editor+`"n_predict": 0}`)
	require.Equal(t, 200, a.Status, a.Text)
	require.Equal(t, "", readInfilled(t, a.Text).Content, "only the prompt is computed")

	a = s.ask(t, "/infill", `{`+editor+`"n_predict": 3, "stream": true}`)
	var content string
	var last infilled
	for line := range strings.Lines(a.Text) {
		if text, ok := strings.CutPrefix(line, "data: "); ok {
			last = readInfilled(t, text)
			content += last.Content
		}
	}
	require.Equal(t, got.Content, content)
	require.True(t, last.Stop)
	require.Equal(t, 3, last.Predicted)

	a = s.ask(t, "/infill", `{`+editor+`"n_predict": 3, "logit_bias": {"81": 100}}`)
	require.Equal(t, "eos", readInfilled(t, a.Text).StopType, "the token <|fim_pad|> ends the answer")
	a = s.ask(t, "/infill", `{`+editor+`"n_predict": 50, "stop": ["\n", "`+got.Content[1:2]+`"]}`)
	require.Equal(t, "word", readInfilled(t, a.Text).StopType, a.Text)
}

// Ensure that the model sees other files before the prefix, and only some of them if not all fit.
func TestOtherFilesComeBeforeThePrefix(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.Tokenizer, c.MaxModelLen = withMarks(t), 128 })
	evaluated := func(files string) int {
		a := s.ask(t, "/infill", `{"input_prefix": "a", "input_suffix": "b", "n_predict": 4, "input_extra": [`+files+`]}`)
		require.Equal(t, 200, a.Status, a.Text)
		return readInfilled(t, a.Text).Evaluated
	}
	const one = `{"filename": "f", "text": "xy", "time": 1}`
	alone, snippet := evaluated(""), len("\n\n--- snippet ---\n\nxy")
	require.Equal(t, alone+snippet, evaluated(one))
	require.Equal(t, alone+5*snippet, evaluated(strings.Repeat(one+",", 9)+one), "128 tokens hold five")
}

func TestWhatInfillCannotDoIsRefused(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.Tokenizer = withMarks(t) })
	for fields, want := range map[string]string{
		`"n": 2`: "/infill has one answer", `"use_beam_search": true`: "/infill has one answer", `"n_predict": -2`: "n_predict is -2",
		`"prompt_logprobs": 1`: "prompt_logprobs is not supported by /infill", `"mirostat": 2`: "use top_p or min_p",
		`"truncate_prompt_tokens": 3`: "truncate_prompt_tokens is not supported by /infill", `"model": "x"`: `The model "x" does not exist`,
		`"input_extra": [5]`: "input_extra", `"suffix": "x"`: "suffix",
	} {
		a := s.ask(t, "/infill", `{"input_prefix": "x", "input_suffix": "y", `+fields+`}`)
		require.Contains(t, []int{400, 404}, a.Status, a.Text)
		require.Contains(t, a.Error.Message, want)
	}
	a := start(t, nil).ask(t, "/infill", `{"input_prefix": "x", "input_suffix": "y"}`)
	require.Equal(t, 400, a.Status)
	require.Contains(t, a.Error.Message, "input_prefix is not supported by the model")
}
