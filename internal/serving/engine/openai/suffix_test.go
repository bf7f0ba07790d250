package openai_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model/tokenizer"
)

// withMarks returns a tokenizer whose tokens are the bytes. Four bytes are replaced by the tokens with which
// Qwen's models fill in the middle of a text. These tokens are not special.
func withMarks(t *testing.T) *tokenizer.Tokenizer {
	return openTokenizer(t, "", map[string]any{"id": 4, "content": "<|fim_prefix|>"}, map[string]any{"id": 5, "content": "<|fim_suffix|>"},
		map[string]any{"id": 6, "content": "<|fim_middle|>"}, map[string]any{"id": 'Q', "content": "<|fim_pad|>"})
}

func TestTheMiddleIsFilledIn(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.Tokenizer = withMarks(t) })
	const body = demo + `"temperature": 0, "return_token_ids": true, `
	a := s.ask(t, texts, body+`"prompt": ["x", "z<|fim_middle|>"], "suffix": "<|fim_pad|>y", "max_tokens": 1}`)
	require.Equal(t, 200, a.Status, a.Text)
	for i, want := range []string{"\x04x\x05<|fim_pad|>y\x06", "\x04z<|fim_middle|>\x05<|fim_pad|>y\x06"} {
		require.Equal(t, want, string(bytesFrom(a.Choices[i].PromptTokenIDs)))
	}

	// logit_bias makes the model choose the token <|fim_pad|>, with which Qwen's models end the middle of a
	// text. The token ends the answer, unless ignore_eos is set.
	const ends = body + `"prompt": "x", "suffix": "y", "max_tokens": 3, "logit_bias": {"81": 100}`
	a = s.ask(t, texts, ends+`}`)
	require.Equal(t, []any{"", "stop"}, []any{a.Choices[0].Text, a.Choices[0].Finish}, a.Text)
	a = s.ask(t, texts, ends+`, "ignore_eos": true}`)
	require.Equal(t, "length", a.Choices[0].Finish)
	a = s.ask(t, texts, body+`"prompt": "x", "suffix": "", "max_tokens": 1}`)
	require.Equal(t, []int32{'x'}, a.Choices[0].PromptTokenIDs)

	for fields, want := range map[string]string{
		`"prompt": [120]`:                            "With suffix, prompt must be a string",
		`"prompt": "x", "echo": true`:                "echo is not supported with suffix",
		`"prompt": "x", "truncate_prompt_tokens": 4`: "truncate_prompt_tokens is not supported with suffix",
	} {
		a = s.ask(t, texts, demo+fields+`, "suffix": "y"}`)
		require.Equal(t, 400, a.Status)
		require.Contains(t, a.Error.Message, want)
	}
}

func bytesFrom(tokens []int32) (text []byte) {
	for _, id := range tokens {
		text = append(text, byte(id))
	}
	return text
}
