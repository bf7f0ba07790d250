package openai_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

type (
	// A messageReply is a message of Anthropic's interface. joinEvents makes one from the events of a stream.
	messageReply struct {
		Content      []messageBlock
		StopReason   string `json:"stop_reason"`
		StopSequence string `json:"stop_sequence"`
		Usage        struct {
			Input  int `json:"input_tokens"`
			Cached int `json:"cache_read_input_tokens"`
			Output int `json:"output_tokens"`
		}
	}
	messageBlock struct {
		Type, Text, Thinking, ID, Name string
		Input                          json.RawMessage
	}
)

// joinEvents makes a message from Anthropic's events, and requires them to be complete and in order.
func joinEvents(t *testing.T, text string) (m messageReply) {
	open := false
	events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
	for i, one := range events {
		name, data, ok := strings.Cut(strings.TrimPrefix(one, "event: "), "\ndata: ")
		require.True(t, ok, one)
		var e struct {
			Type  string
			Index int
			Block messageBlock `json:"content_block"`
			Delta struct {
				messageReply
				Text, Thinking string
				JSON           string `json:"partial_json"`
			}
			Usage json.RawMessage
		}
		require.NoError(t, json.Unmarshal([]byte(data), &e))
		require.Equal(t, name, e.Type)
		require.Equal(t, i == 0, name == "message_start")
		require.Equal(t, i == len(events)-1, name == "message_stop")
		switch name {
		case "content_block_start":
			require.False(t, open)
			require.Len(t, m.Content, e.Index)
			e.Block.Input = nil
			m.Content, open = append(m.Content, e.Block), true
		case "content_block_delta":
			require.True(t, open)
			c := &m.Content[e.Index]
			c.Text, c.Thinking, c.Input = c.Text+e.Delta.Text, c.Thinking+e.Delta.Thinking, append(c.Input, e.Delta.JSON...)
		case "content_block_stop":
			require.True(t, open)
			open = false
		case "message_delta":
			m.StopReason, m.StopSequence = e.Delta.StopReason, e.Delta.StopSequence
			require.NoError(t, json.Unmarshal(e.Usage, &m.Usage))
		}
	}
	require.False(t, open)
	return m
}

// messageBoth sends a request as it is and as a stream, requires equal messages, and returns one.
func (s *served) messageBoth(t *testing.T, fields string) (m messageReply) {
	t.Helper()
	a := s.ask(t, messages, demo+fields+"}")
	require.Equal(t, 200, a.Status, a.Text)
	require.NoError(t, json.Unmarshal([]byte(a.Text), &m))
	require.NotEmpty(t, a.Header.Get("Request-Id"))
	other := joinEvents(t, s.ask(t, messages, demo+fields+`, "stream": true}`).Text)
	require.Len(t, other.Content, len(m.Content))
	other.Content = append([]messageBlock{}, other.Content...)
	for i := range m.Content {
		if id := m.Content[i].ID; id != "" {
			require.NotEmpty(t, other.Content[i].ID)
			other.Content[i].ID = id
			if m.StopReason != "max_tokens" && m.StopReason != "stop_sequence" {
				require.JSONEq(t, string(m.Content[i].Input), string(other.Content[i].Input))
			}
			other.Content[i].Input = m.Content[i].Input
		}
	}
	require.Equal(t, m.Usage.Input+m.Usage.Cached, other.Usage.Input+other.Usage.Cached)
	other.Usage = m.Usage
	require.Equal(t, m, other)
	return m
}

// userMessage returns the fields of a request to repeat a text.
func userMessage(text string) string {
	quoted, _ := json.Marshal(text)
	return `"max_tokens": 300, "temperature": 0, "messages": [{"role": "user", "content": ` + string(quoted) + `}]`
}

func TestMessagesAreAnswered(t *testing.T) {
	s := startAll(t, nil)
	m := s.messageBoth(t, userMessage("Größe: 20 €"))
	require.Equal(t, []messageBlock{{Type: "text", Text: "Größe: 20 €"}}, m.Content)
	require.Equal(t, []any{"end_turn", len("Größe: 20 €") + 1}, []any{m.StopReason, m.Usage.Output})
	m = s.messageBoth(t, userMessage("Größe: 20 €")+`, "stop_sequences": ["ß", "20"]`)
	require.Equal(t, []any{"Grö", "stop_sequence", "ß"}, []any{m.Content[0].Text, m.StopReason, m.StopSequence})
	m = s.messageBoth(t, strings.Replace(userMessage("Hello"), "300", "3", 1))
	require.Equal(t, []any{"Hel", "max_tokens"}, []any{m.Content[0].Text, m.StopReason})
	m = s.messageBoth(t, strings.Replace(userMessage(strings.Repeat("word ", 190)), "300", "3000", 1))
	require.Equal(t, "model_context_window_exceeded", m.StopReason)
	m = s.messageBoth(t, `"max_tokens": 300, "temperature": 0, "messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hel"}]`)
	require.Equal(t, "lo", m.Content[0].Text, "the answer continues the last message")

	a := s.ask(t, countMessages, demo+userMessage("Hello")+`, "stream": true}`)
	require.JSONEq(t, `{"input_tokens": 9}`, a.Text)
	requireError(t, messages, s.ask(t, messages, demo+`"messages": [{"role": "user", "content": "x"}]}`), 400, "invalid_request_error",
		"max_tokens is missing")
}

const messageTools = `, "tools": [{"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"enum": ["Rom", "Köln"]},
	"days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"], "additionalProperties": false}}]`

func TestMessagesHaveThinkingAndCalls(t *testing.T) {
	s := startTools(t, "mistral", "deepseek_r1")
	text := userMessage(`Hm.</think>I look.[TOOL_CALLS]get_weather[ARGS]{"city":"Rom","days": 7}`) + messageTools
	m := s.messageBoth(t, text)
	require.Len(t, m.Content, 3)
	require.Equal(t, []messageBlock{{Type: "thinking", Thinking: "Hm."}, {Type: "text", Text: "I look."}}, m.Content[:2])
	require.Equal(t, []any{"tool_use", "get_weather"}, []any{m.Content[2].Type, m.Content[2].Name})
	require.JSONEq(t, `{"city":"Rom","days": 7}`, string(m.Content[2].Input))
	require.Equal(t, "tool_use", m.StopReason)
	m = s.messageBoth(t, text+`, "thinking": {"type": "adaptive", "display": "omitted"}`)
	require.Equal(t, "I look.", m.Content[0].Text)
	m = s.messageBoth(t, text+`, "tool_choice": {"type": "none"}`)
	require.Equal(t, "end_turn", m.StopReason)
	require.Len(t, m.Content, 2)
}

func TestMessagesHaveTheCallsThatMustCome(t *testing.T) {
	s := startTools(t, "hermes", "")
	// The model repeats the text as far as the form of calls allows.
	text := userMessage(`arguments": {"city":"Rom", "days" : 7}}`) + messageTools
	for _, choice := range []string{`{"type": "any", "disable_parallel_tool_use": true}`, `{"type": "tool", "name": "get_weather"}`} {
		m := s.messageBoth(t, text+`, "tool_choice": `+choice)
		require.Equal(t, "tool_use", m.StopReason)
		require.Len(t, m.Content, 1)
		require.JSONEq(t, `{"city": "Rom", "days": 7}`, string(m.Content[0].Input))
	}
	m := s.messageBoth(t, text)
	require.Equal(t, "text", m.Content[0].Type)
	a := s.ask(t, messages, demo+text+`, "tool_choice": {"type": "tool", "name": "other"}}`)
	requireError(t, messages, a, 400, "invalid_request_error", `tool_choice has the function "other", which is not in tools`)
}

// Ensure that count_tokens counts the tokens of the prompt that /v1/messages makes for the same request. If the
// template shows tools, their tokens count. count_tokens must refuse the tools that /v1/messages refuses.
func TestTheTokensThatAreCountedAreThoseOfThePrompt(t *testing.T) {
	for _, test := range []struct{ name, template, fields, says string }{
		{"the template shows tools", "{{ tools }}{{ messages[0].content }}", messageTools, ""},
		{"the template does not show tools", "{{ messages[0].content }}", messageTools, "does not show tools to the model"},
		{"the model must call", "{{ messages[0].content }}", messageTools + `, "tool_choice": {"type": "any"}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			prompts := make(chan int, 2)
			s := startAll(t, func(o *openai.Config, _ *engine.Config) {
				useTools(t, o, "hermes")
				o.Template = newTemplate(t, test.template)
				o.Record = func(r openai.Record) { prompts <- r.PromptTokens }
			})
			a := s.ask(t, countMessages, bodyOf(countMessages, "x", 1)+test.fields+"}")
			<-prompts
			if test.says != "" {
				requireError(t, countMessages, a, 400, "invalid_request_error", test.says)
				requireError(t, messages, s.ask(t, messages, bodyOf(messages, "x", 1)+test.fields+"}"), 400, "invalid_request_error", test.says)
				return
			}
			require.Equal(t, 200, s.ask(t, messages, bodyOf(messages, "x", 1)+test.fields+"}").Status)
			require.JSONEq(t, fmt.Sprintf(`{"input_tokens": %d}`, <-prompts), a.Text)
		})
	}
}

// Ensure that thinking and effort become variables of the template. If the template does not use these variables, the
// fields are ignored.
func TestThinkingAndEffortAreVariablesOfTheTemplate(t *testing.T) {
	for _, test := range []struct{ name, template, path, fields, want string }{
		{"enabled", "{{ enable_thinking }}", messages, `, "thinking": {"type": "enabled", "budget_tokens": 1024}`, "True"},
		{"disabled", "{{ enable_thinking }}", messages, `, "thinking": {"type": "disabled"}`, "False"},
		{"by the template", "{{ enable_thinking is defined }}", messages, `, "thinking": {"type": "adaptive"}`, "False"},
		{"of DeepSeek", "{{ thinking }}", messages, `, "thinking": {"type": "enabled", "budget_tokens": 1024}`, "True"},
		{"of no template", "{{ messages[0].content }}", messages, `, "thinking": {"type": "disabled"}, "output_config": {"effort": "low"}`, "x"},
		{"effort", "{{ reasoning_effort }}", messages, `, "output_config": {"effort": "max"}`, "high"},
		{"effort of responses", "{{ reasoning_effort }}", respond, `, "reasoning": {"effort": "minimal"}`, "low"},
		{"no effort", "{{ enable_thinking }}", respond, `, "reasoning": {"effort": "none"}`, "False"},
	} {
		t.Run(test.name, func(t *testing.T) {
			prompts := make(chan int, 1)
			s := startAll(t, func(o *openai.Config, _ *engine.Config) {
				o.Template = newTemplate(t, test.template)
				o.Record = func(r openai.Record) { prompts <- r.PromptTokens }
			})
			a := s.ask(t, test.path, bodyOf(test.path, "x", 1)+test.fields+"}")
			require.Equal(t, 200, a.Status, a.Text)
			require.Equal(t, len(test.want), <-prompts)
		})
	}
	s := startAll(t, nil)
	requireError(t, respond, s.ask(t, respond, bodyOf(respond, "x", 1)+`, "reasoning": {"effort": "much"}}`), 400, "",
		`reasoning.effort is "much"; none, minimal`)
}
