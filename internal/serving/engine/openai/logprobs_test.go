package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model/tokenizer"
)

// Ensure that a prompt can be scored without an answer. With echo and max_tokens 0, the prompt must have the same log
// probabilities as with a longer answer. They must also be the same if the prompt is in the prefix cache, and if the
// answer is streamed.
func TestAPromptIsScoredWithoutGenerating(t *testing.T) {
	s := start(t, nil)
	prompt, _ := json.Marshal(story + story)
	begin := fmt.Sprintf(`{"model": "demo", "prompt": %s, "echo": true, "temperature": 0, `, prompt)
	longer := s.ask(t, texts, begin+`"logprobs": 2, "max_tokens": 1}`).Choices[0].Logprobs
	n := len(longer.Tokens) - 1
	const stream = `, "stream": true, "stream_options": {"include_usage": true}`
	for _, test := range []struct {
		fields   string
		answers  int
		logprobs bool
	}{
		{`"logprobs": 2`, 1, true}, {`"logprobs": 2` + stream, 1, true},
		{`"logprobs": 2, "n": 2`, 2, true}, {`"logprobs": 2, "n": 2` + stream, 2, true},
		{`"logprobs": 2, "best_of": 3`, 1, true}, {`"seed": 1`, 1, false},
		{`"logprobs": 2, "stop": "T"`, 1, true}, // with which the first token would end it
	} {
		got := s.ask(t, texts, begin+`"max_tokens": 0, `+test.fields+"}")
		require.Len(t, got.Choices, test.answers, test.fields)
		for _, c := range got.Choices {
			require.Equal(t, story+story, c.Text)
			require.Equal(t, "length", c.Finish)
			if !test.logprobs {
				require.Nil(t, c.Logprobs)
				continue
			}
			require.Equal(t, longer.Tokens[:n], c.Logprobs.Tokens)
			require.Equal(t, longer.Values[:n], c.Logprobs.Values)
			require.Equal(t, longer.Top[:n], c.Logprobs.Top)
		}
		require.Equal(t, n, got.Usage.Prompt)
		require.Zero(t, got.Usage.Completion)
		require.Equal(t, n, got.Usage.Total)
	}
	settle(t, s)
}

// Ensure that a stream has the same log probabilities as a whole answer. Offsets are positions of
// characters in the text.
func TestEachAnswerOfAStreamHasTheLogprobsOfTheEchoedPrompt(t *testing.T) {
	s := start(t, nil)
	const begin = demo + `"prompt": "añc añc", "max_tokens": 4, "temperature": 0, "n": 2, "echo": true, "logprobs": 1`
	whole, stream := s.ask(t, texts, begin+"}"), s.ask(t, texts, begin+`, "stream": true}`)
	require.Len(t, whole.Choices, 2)
	for i, want := range whole.Choices {
		text, logs := "", logprobs{}
		for _, c := range stream.Choices {
			if c.Index == i {
				text += c.Text
				logs.Tokens, logs.Values = append(logs.Tokens, c.Logprobs.Tokens...), append(logs.Values, c.Logprobs.Values...)
				logs.Top, logs.Offsets = append(logs.Top, c.Logprobs.Top...), append(logs.Offsets, c.Logprobs.Offsets...)
			}
		}
		require.Equal(t, "añc añc añ", text)
		require.Equal(t, want.Text, text)
		require.Equal(t, *want.Logprobs, logs)
		for k, token := range logs.Tokens {
			if len(token) == 1 && token[0] >= ' ' && token[0] < 0x7f { // a character of its own
				require.Equal(t, token, string([]rune(text)[logs.Offsets[k]]), "token %d", k)
			}
		}
	}
}

// spaced returns a tokenizer that works like SentencePiece: it puts a space before a text and cuts the
// text into bytes. It also has the token <end>.
func spaced(t *testing.T) *tokenizer.Tokenizer {
	tok, err := tokenizer.Parse(byteTokenizer(t, map[string]any{"type": "Prepend", "prepend": "▁"},
		map[string]any{"id": 2, "content": "<end>", "special": true}))
	require.NoError(t, err)
	return tok
}

// byteTokenizer returns a tokenizer.json whose tokens are the 256 bytes. The added tokens replace some of them.
func byteTokenizer(t *testing.T, normalizer map[string]any, added ...map[string]any) []byte {
	vocabulary := map[string]int{}
	for b := range 256 {
		vocabulary[fmt.Sprintf("<0x%02X>", b)] = b
	}
	text, err := json.Marshal(map[string]any{
		"normalizer": normalizer, "added_tokens": added,
		"model": map[string]any{"type": "BPE", "vocab": vocabulary, "merges": []string{}, "byte_fallback": true},
	})
	require.NoError(t, err)
	return text
}

// openTokenizer returns the tokenizer of byteTokenizer with an end token. end is the end token's content, or "".
func openTokenizer(t *testing.T, end string, added ...map[string]any) *tokenizer.Tokenizer {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), byteTokenizer(t, nil, added...), 0o644))
	if end != "" {
		text, err := json.Marshal(map[string]string{"eos_token": end})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"), text, 0o644))
	}
	tok, err := tokenizer.Open(dir)
	require.NoError(t, err)
	return tok
}

func TestEchoIsThePromptAsItWasGiven(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.Tokenizer = spaced(t) })
	const prompt = "ab<end>ñ ab"
	got := s.ask(t, texts, fmt.Sprintf(demo+`"prompt": %q, "echo": true, "logprobs": 0, "max_tokens": 1, `+
		`"logit_bias": {"120": 100}, "temperature": 0}`, prompt)).Choices[0]
	require.Equal(t, prompt+"x", got.Text)
	offsets := got.Logprobs.Offsets
	require.Equal(t, len([]rune(prompt)), offsets[len(offsets)-1], "where the answer begins")
}

// JSON has one U+FFFD for all bytes that are no text.
func TestTokensThatAreNoTextHaveTheirOwnKeys(t *testing.T) {
	s := start(t, nil)
	a := s.ask(t, texts, demo+
		`"prompt": "ñ ñ", "max_tokens": 1, "temperature": 0, "logprobs": 3, "logit_bias": {"195": 100}}`)
	l := a.Choices[0].Logprobs
	require.Equal(t, []string{`bytes:\xc3`}, l.Tokens)
	require.Contains(t, l.Top[0], `bytes:\xc3`)
	require.Contains(t, []int{3, 4}, len(l.Top[0]))
	require.Equal(t, bytes.Count([]byte(a.Text), []byte(`bytes:\\x`)), 1+len(l.Top[0])-printable(l.Top[0]))
}

func printable(top map[string]float64) (n int) {
	for token := range top {
		if len(token) == 1 {
			n++
		}
	}
	return n
}
