package openai_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
	"llmmemory/internal/engine/openai"
)

// send sends a body and reads the error of the answer.
func (s *served) send(t *testing.T, method, path, kind, body string) (*http.Response, map[string]any) {
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer got.Body.Close()
	data, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	var answer struct{ Error map[string]any }
	_ = json.Unmarshal(data, &answer) // a stream is none
	return got, answer.Error
}

// biases are n more entries of a logit_bias.
func biases(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `, "%d": 1`, i+1)
	}
	return b.String()
}

func TestAnErrorNamesTheFieldAndWhatIsExpected(t *testing.T) {
	s := start(t, nil)
	const text, talk = `{"model": "demo", "prompt": "x", `,
		`{"model": "demo", "messages": [{"role": "user", "content": "x"}], `
	for _, test := range []struct{ name, body, param, want string }{
		{"a part of a token", text + `"max_tokens": 1.5}`, "max_tokens",
			"max_tokens is a JSON number 1.5; a whole number is expected."},
		{"more than 63 bits", text + `"seed": 9223372036854775808}`, "seed", "a whole number of at most 63 bits"},
		{"a text", text + `"max_tokens": "5"}`, "max_tokens", "max_tokens is a JSON string; a whole number is expected."},
		{"a list with something else", `{"model": "demo", "messages": ["hi"]}`, "messages",
			"messages contains a JSON string; an object is expected."},
		{"a list of tokens with a text", text + `"stop_token_ids": [1, "2"]}`, "stop_token_ids",
			"stop_token_ids contains a JSON string; a whole number is expected."},
		{"no list", `{"model": "demo", "messages": "hi"}`, "messages", "messages is a JSON string; a list is expected."},
		{"a text as a number", text + `"temperature": "hot"}`, "temperature", "a number is expected"},
		{"a number as truth", text + `"stream": 1}`, "stream", "true or false is expected"},
		{"inside an object", text + `"stream": true, "stream_options": {"include_usage": 5}}`,
			"stream_options.include_usage", "true or false"},
		{"best_of", text + `"best_of": 1000}`, "best_of", "best_of is 1000; it must be from 1 to 128."},
		{"logprobs", text + `"logprobs": 21}`, "logprobs", "logprobs is 21; it must be from 0 to 20."},
		{"top_logprobs", talk + `"logprobs": true, "top_logprobs": 21}`, "top_logprobs",
			"top_logprobs is 21; it must be from 0 to 20."},
		{"max_completion_tokens", talk + `"max_completion_tokens": 0}`, "max_completion_tokens",
			"max_completion_tokens is 0"},
		{"top_k", text + `"top_k": -2}`, "top_k", "it must be from 0 to 2147483647."},
		{"top_p", text + `"top_p": 0}`, "top_p", "it must be above 0 and at most 1."},
		{"a token to stop at", text + `"stop_token_ids": [-1]}`, "stop_token_ids", "Token -1 is not in the vocabulary"},
		{"too many tokens to stop at", text + `"stop_token_ids": [1` + strings.Repeat(", 1", 128) + `]}`, "stop_token_ids",
			"stop_token_ids has 129 tokens; at most 128 are possible."},
		{"a bias of one token twice", text + `"logit_bias": {"7": 5, "07": -5}}`, "logit_bias",
			`logit_bias has the key "07"`},
		{"a token with a sign", text + `"logit_bias": {"+7": 5}}`, "logit_bias", `logit_bias has the key "+7"`},
		{"too many biases", text + `"logit_bias": {"0": 1` + biases(1024) + `}}`, "logit_bias",
			"logit_bias has 1025 tokens; at most 1024 are possible."},
		{"no model", `{"prompt": "x"}`, "model", `model is missing; this server has "demo".`},
		{"no prompt", `{"model": "demo", "prompt": null}`, "prompt", "prompt is missing"},
		{"logprobs of the prompt", text + `"prompt_logprobs": 1}`, "prompt_logprobs", "not supported"},
		{"a cut prompt", text + `"truncate_prompt_tokens": 5}`, "truncate_prompt_tokens", "not supported"},
		{"a prompt without its first token", text + `"add_special_tokens": false}`, "add_special_tokens", "not supported"},
		{"an answer that goes on", talk + `"continue_final_message": true}`, "continue_final_message", "not supported"},
		{"an echo of a chat", talk + `"echo": true}`, "echo", "not supported"},
		{"numbers of tokens", text + `"logprobs": 1, "return_tokens_as_token_ids": true}`, "return_tokens_as_token_ids",
			"not supported"},
		{"numbers of tokens beside the text", text + `"return_token_ids": true}`, "return_token_ids", "not supported"},
		{"a priority", text + `"priority": 1}`, "priority", "not supported"},
		{"usage with each event", text + `"stream": true, "stream_options": {"continuous_usage_stats": true}}`,
			"stream_options.continuous_usage_stats", "include_usage is"},
		{"an empty salt", text + `"cache_salt": ""}`, "cache_salt", "cache_salt is empty"},
		{"no messages", `{"model": "demo", "prompt": "x", "messages": null}`, "messages", "messages is missing."},
		{"an empty list of messages", `{"model": "demo", "messages": []}`, "messages", "messages is empty."},
		{"a message without content", `{"model": "demo", "messages": [{"role": "user", "contents": "x"}]}`, "messages",
			"Message 0 has no content."},
		{"content null", `{"model": "demo", "messages": [{"role": "user", "content": "x"}, {"role": "system", "content": null}]}`, "messages", "Message 1 has no content."},
		{"a call of no tool", `{"model": "demo", "messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}`,
			"messages", "Call 0 of message 0 has no function with a name."},
		{"a call of a tool without a name",
			`{"model": "demo", "messages": [{"role": "assistant", "tool_calls": [{"function": {"name": 1}}]}]}`,
			"messages", "Call 0 of message 0 has no function with a name."},
		{"a call that is none", `{"model": "demo", "messages": [{"role": "assistant", "tool_calls": [null]}]}`,
			"messages", "Call 0 of message 0 has no function with a name."},
		{"a call of a function", `{"model": "demo", "messages": [{"role": "assistant", "function_call": {"name": "f"}}]}`,
			"messages", "Message 0 has a function_call; use tool_calls."},
		{"another template", talk + `"chat_template": "x"}`, "chat_template", "not supported"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := "/v1/completions"
			if strings.Contains(test.body, "messages") {
				path = "/v1/chat/completions"
			}
			r, e := s.send(t, "POST", path, "application/json", test.body)
			require.Equal(t, 400, r.StatusCode, e)
			require.Equal(t, test.param, e["param"], e)
			require.Contains(t, e["message"], test.want)
		})
	}
	r, e := s.send(t, "POST", "/v1/chat/completions", "application/json", talk+
		`"max_tokens": 1, "logprobs": false, "top_logprobs": 0, "continue_final_message": false, "add_special_tokens": false, "chat_template_kwargs": {}, "echo": false, "return_token_ids": false, "priority": 0}`)
	require.Equal(t, 200, r.StatusCode, e)
}

func TestABodyOfAnotherTypeAndAnotherMethodAreRefused(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.APIKeys = nil })
	const body = `{"model": "demo", "prompt": "x", "max_tokens": 1}`
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
		"json"} {
		r, e := s.send(t, "POST", "/v1/completions", kind, body)
		require.Equal(t, 415, r.StatusCode, kind)
		require.Contains(t, e["message"], "application/json")
	}
	for _, kind := range []string{"application/json", "application/json; charset=utf-8", "Application/JSON", ""} {
		r, e := s.send(t, "POST", "/v1/completions", kind, body)
		require.Equal(t, 200, r.StatusCode, "%s: %v", kind, e)
	}
	for path, method := range map[string]string{"/v1/completions": "POST", "/v1/chat/completions": "POST",
		"/v1/models": "GET"} {
		r, e := s.send(t, "DELETE", path, "", "")
		require.Equal(t, 405, r.StatusCode, path)
		require.Contains(t, r.Header.Get("Allow"), method)
		require.Contains(t, e["message"], method)
	}
}

func TestTheNameOfTheSchemeOfAKeyMayBeInLowerCase(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.APIKeys = []string{"secret"} })
	for _, header := range []string{"Bearer secret", "bearer secret", "BEARER secret"} {
		r, err := http.NewRequest("GET", s.url+"/v1/models", nil)
		require.NoError(t, err)
		r.Header.Set("Authorization", header)
		got, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.NoError(t, got.Body.Close())
		require.Equal(t, 200, got.StatusCode, header)
	}
}

// logged is one answer with echo and logprobs.
type logged struct {
	text    string
	tokens  []string
	offsets []int
}

func (l *logged) add(t *testing.T, choice map[string]any) {
	l.text += choice["text"].(string)
	list, ok := choice["logprobs"].(map[string]any)
	require.True(t, ok, choice)
	for i, token := range list["tokens"].([]any) {
		l.tokens = append(l.tokens, token.(string))
		l.offsets = append(l.offsets, int(list["text_offset"].([]any)[i].(float64)))
	}
}

func TestEachAnswerOfAStreamHasTheLogprobsOfTheEchoedPrompt(t *testing.T) {
	s := start(t, nil)
	const body = `{"model": "demo", "prompt": "añc añc", "max_tokens": 4, "temperature": 0, "n": 2, "echo": true, "logprobs": 1, "stream": `
	answers := map[string][2]logged{}
	for _, stream := range []string{"false", "true"} {
		r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(body+stream+"}"))
		require.NoError(t, err)
		data, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		var got [2]logged
		for line := range strings.SplitSeq(string(data), "\n") {
			line = strings.TrimPrefix(line, "data: ")
			var chunk struct{ Choices []map[string]any }
			if line == "" || line == "[DONE]" {
				continue
			}
			require.NoError(t, json.Unmarshal([]byte(line), &chunk), line)
			for _, choice := range chunk.Choices {
				got[int(choice["index"].(float64))].add(t, choice)
			}
		}
		answers[stream] = got
	}
	require.Equal(t, answers["false"], answers["true"])
	for _, a := range answers["true"] {
		require.Equal(t, "añc añc añ", a.text)
		runes := []rune(a.text)
		for i, token := range a.tokens {
			if len(token) == 1 && token[0] >= ' ' && token[0] < 0x7f { // a character of its own
				require.Equal(t, token, string(runes[a.offsets[i]]), "token %d", i)
			}
		}
	}
}

func TestNamesOfFieldsInAnotherCaseAreUnknownFields(t *testing.T) {
	s := start(t, nil)
	const text = `{"model": "demo", "prompt": "ab12 ab", "temperature": 0, `
	for _, test := range []struct{ name, body string }{
		{"a number", text + `"max_tokens": 2, "MAX_TOKENS": 1}`},
		{"before the right one", text + `"Max_Tokens": 1, "max_tokens": 2}`},
		{"of a wrong type", text + `"max_tokens": 2, "STREAM": 5}`},
		{"that is refused in its own case", text + `"max_tokens": 2, "N": 0}`},
		{"inside an object", text + `"max_tokens": 2, "stream": true, "stream_options": {"INCLUDE_USAGE": 5}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := http.Post(s.url+"/v1/completions", "application/json", strings.NewReader(test.body))
			require.NoError(t, err)
			defer r.Body.Close()
			data, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Equal(t, 200, r.StatusCode, string(data))
			require.Regexp(t, `"text":"1?2"`, string(data), "two tokens")
		})
	}
	r, e := s.send(t, "POST", "/v1/completions", "application/json", `{"MODEL": "demo", "prompt": "x"}`)
	require.Equal(t, 400, r.StatusCode)
	require.Equal(t, "model", e["param"])
}
