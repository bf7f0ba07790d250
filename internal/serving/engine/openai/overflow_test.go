package openai_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

// Ensure that each interface says in its provider's words that a prompt is too long, because clients look for these words
// to shorten the conversation: Claude Code for a sentence with both numbers, Codex for the code in an event.
func TestAPromptThatIsTooLongIsToldInTheWordsOfTheProvider(t *testing.T) {
	s := startAll(t, func(_ *openai.Config, c *engine.Config) { c.MaxModelLen = 64 })
	long := strings.Repeat("x", 500)
	for _, stream := range []string{"", `, "stream": true`} {
		a := s.ask(t, messages, bodyOf(messages, long, 5)+stream+"}")
		require.Equal(t, 400, a.Status)
		require.Regexp(t, `^\{"type":"error","error":\{"type":"invalid_request_error","message":"prompt is too long: 50\d tokens \\u003e 63 maximum"\}`, a.Text)
		require.Equal(t, 400, s.ask(t, messages, bodyOf(messages, strings.Repeat("x", 60), 5)+"}").Status, "60 bytes and their markers")
		require.Equal(t, 200, s.ask(t, messages, bodyOf(messages, strings.Repeat("x", 55), 5)+"}").Status)
	}
	a := s.ask(t, respond, bodyOf(respond, long, 5)+"}")
	require.Equal(t, 400, a.Status)
	require.Equal(t, "context_length_exceeded", a.Error.Code)
	require.Regexp(t, `^Your input exceeds the context window of this model. Please adjust your input and try again. It has 50\d tokens; at most 63 are possible.$`, a.Error.Message)

	a = s.ask(t, respond, bodyOf(respond, long, 5)+`, "stream": true}`)
	require.Equal(t, 200, a.Status)
	var names []string
	var last struct {
		Response struct {
			Error struct{ Code, Message string }
		}
	}
	for _, one := range strings.Split(strings.TrimSpace(a.Text), "\n\n") {
		name, data, ok := strings.Cut(strings.TrimPrefix(one, "event: "), "\ndata: ")
		require.True(t, ok, one)
		names = append(names, name)
		require.NoError(t, json.Unmarshal([]byte(data), &last))
	}
	require.Equal(t, []string{"response.created", "response.in_progress", "response.failed"}, names)
	require.Equal(t, "context_length_exceeded", last.Response.Error.Code)
	require.Contains(t, last.Response.Error.Message, "Your input exceeds the context window")

	a = s.ask(t, chats, demo+`"messages": [{"role": "user", "content": "`+long+`"}]}`)
	require.Equal(t, "context_length_exceeded", a.Error.Code)
	require.Contains(t, a.Error.Message, "This model's maximum context length is 64 tokens. However, your messages resulted in")
}

// Ensure that the line which differs in each request of Claude Code does not keep the rest of the system prompt from being
// found in the prefix cache.
func TestClaudeCodesBillingLineDoesNotDefeatThePrefixCache(t *testing.T) {
	s := startAll(t, nil)
	ask := func(system string) messageReply {
		a := s.ask(t, messages, demo+`"max_tokens": 1, "messages": [{"role": "user", "content": "hi"}], "system": `+system+"}")
		require.Equal(t, 200, a.Status, a.Text)
		var m messageReply
		require.NoError(t, json.Unmarshal([]byte(a.Text), &m))
		return m
	}
	prompt := strings.Repeat("You are an agent. ", 40)
	header := func(cch string) string { return "x-anthropic-billing-header: cc_version=2; cch=" + cch + ";" }
	first := ask(`[{"type": "text", "text": "` + header("a") + `"}, {"type": "text", "text": "` + prompt + `"}]`)
	second := ask(`[{"type": "text", "text": "` + header("b") + `"}, {"type": "text", "text": "` + prompt + `"}]`)
	require.Equal(t, first.Usage.Input+first.Usage.Cached, second.Usage.Input+second.Usage.Cached)
	require.Greater(t, second.Usage.Cached, 600)
	text := ask(`"` + header("c") + `\n` + prompt + `"`)
	require.Greater(t, text.Usage.Cached, 600)
	none := ask(`"` + prompt + `"`)
	require.Equal(t, none.Usage.Input+none.Usage.Cached, text.Usage.Input+text.Usage.Cached)
	only := ask(`[{"type": "text", "text": "` + header("d") + `"}]`)
	require.Less(t, only.Usage.Input, 12, "nothing is left of the system prompt")
	kept := ask(`"I send x-anthropic-billing-header: a"`)
	require.Greater(t, kept.Usage.Input+kept.Usage.Cached, 40)
}
