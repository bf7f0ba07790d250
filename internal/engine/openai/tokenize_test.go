package openai_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
	"llmmemory/internal/engine/openai"
)

// post sends a body and returns status and answer.
func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	r, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, strings.TrimSpace(string(text))
}

func TestTokenizeAndDetokenizeAnswerAsVLLMDoes(t *testing.T) {
	s := start(t, nil)
	for _, c := range []struct{ path, body, want string }{
		{"/tokenize", `{"prompt": "ab"}`, `{"count":3,"max_model_len":1024,"tokens":[1,97,98],"token_strs":null}`},
		{"/tokenize", `{"model": "demo", "prompt": "aü", "add_special_tokens": false, "return_token_strs": true}`,
			`{"count":3,"max_model_len":1024,"tokens":[97,195,188],"token_strs":["a","�","�"]}`},
		{"/tokenize", `{"prompt": "", "add_special_tokens": false}`, `{"count":0,"max_model_len":1024,"tokens":[],"token_strs":null}`},
		{"/detokenize", `{"tokens": [97, 195, 188]}`, `{"prompt":"aü"}`},
		{"/detokenize", `{"tokens": []}`, `{"prompt":""}`},
	} {
		status, got := post(t, s.url+c.path, c.body)
		require.Equal(t, 200, status, got)
		require.Equal(t, c.want, got, c.body)
	}

	// The tokens of messages are those that a chat computes.
	status, text := post(t, s.url+"/tokenize", `{"messages": [{"role": "user", "content": "hello"}]}`)
	require.Equal(t, 200, status, text)
	var got struct{ Count int64 }
	require.NoError(t, json.Unmarshal([]byte(text), &got))
	answer, err := s.client.Chat.Completions.New(t.Context(), message("hello"))
	require.NoError(t, err)
	require.Equal(t, answer.Usage.PromptTokens, got.Count)

	for _, c := range []struct{ path, body, says string }{
		{"/tokenize", `{}`, "prompt is missing"},
		{"/tokenize", `{"prompt": "a", "messages": []}`, "both prompt and messages"},
		{"/tokenize", `{"messages": []}`, "messages is empty"},
		{"/tokenize", `{"messages": [{"role": "user", "content": "a"}], "add_special_tokens": true}`, "itself"},
		{"/tokenize", `{"prompt": "a", "model": "other"}`, `The model \"other\" does not exist`},
		{"/tokenize", `[]`, "an object is expected"},
		{"/detokenize", `{}`, "tokens is missing"},
		{"/detokenize", `{"tokens": [-1]}`, "tokens contains -1"},
		{"/detokenize", `{"tokens": [100000]}`, "the vocabulary has the tokens 0 to"},
	} {
		status, text := post(t, s.url+c.path, c.body)
		require.Contains(t, []int{400, 404}, status)
		require.Contains(t, text, c.says, c.body)
	}
}

func TestTheVersionOfTheServerIsSaid(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.Version = "1.2.3" })
	r, err := http.Get(s.url + "/version")
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.JSONEq(t, `{"version": "1.2.3"}`, string(text))
	status, answer := post(t, s.url+"/version", "{}")
	require.Equal(t, 405, status, answer)
}

// A chat template that cannot be used costs chat, and nothing else.
func TestAModelWithABrokenTemplateCompletesTexts(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) {
		c.Template, c.TemplateError = nil, errors.New("line 3: what is this")
	})
	_, err := s.client.Completions.New(t.Context(), completion(story+"The code", 3))
	require.NoError(t, err)
	_, err = s.client.Chat.Completions.New(t.Context(), message("hello"))
	require.ErrorContains(t, err, "cannot be used: line 3: what is this. Use /v1/completions")
}
