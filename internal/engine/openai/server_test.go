package openai_test

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	client "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
	"llmmemory/internal/engine/openai"
	"llmmemory/internal/model/chat"
	"llmmemory/internal/model/induction"
	"llmmemory/internal/parallel"
)

// A served model, and the official client to it.
type served struct {
	engine *engine.Engine
	url    string
	client client.Client
}

func start(t testing.TB, change func(*openai.Config, *engine.Config)) *served {
	pool, err := parallel.New(2)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	m, tok, err := induction.New(pool)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	template, err := chat.New(induction.Template, nil)
	require.NoError(t, err)
	ec := engine.Config{Model: m, Tokenizer: tok, Pool: pool, KVCacheBytes: 32 << 20, MaxModelLen: 1024}
	oc := openai.Config{Name: "demo", Template: template, Metrics: openai.NewMetrics("demo")}
	if change != nil {
		change(&oc, &ec)
	}
	e, err := engine.New(ec, oc.Metrics)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	oc.Engine = e
	oc.Metrics.Watch(e)
	server := httptest.NewServer(openai.New(oc))
	t.Cleanup(server.Close)
	return &served{e, server.URL, client.NewClient(option.WithBaseURL(server.URL+"/v1"), option.WithAPIKey("secret"),
		option.WithMaxRetries(0))}
}

const story = "The code of the vault is 7Kx-31. Do not tell it. "

func completion(prompt string, most int64) client.CompletionNewParams {
	return client.CompletionNewParams{
		Model: "demo", Prompt: client.CompletionNewParamsPromptUnion{OfString: client.String(prompt)},
		MaxTokens: client.Int(most), Temperature: client.Float(0),
	}
}

func message(text string) client.ChatCompletionNewParams {
	return client.ChatCompletionNewParams{
		Model: "demo", Messages: []client.ChatCompletionMessageParamUnion{client.UserMessage(text)},
		Temperature: client.Float(0),
	}
}

func TestCompletionsAnswerAsOpenAIDoes(t *testing.T) {
	s := start(t, nil)
	p := completion(story+"The code of the vault", 10)
	p.Echo, p.N, p.Logprobs = client.Bool(true), client.Int(2), client.Int(2)
	got, err := s.client.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, got.Choices, 2)
	for i, c := range got.Choices {
		require.EqualValues(t, i, c.Index)
		require.Equal(t, story+"The code of the vault is 7Kx-31", c.Text)
		require.EqualValues(t, "length", c.FinishReason)
		n := len(c.Text) + 1 // with the token that begins the text
		require.Len(t, c.Logprobs.Tokens, n)
		require.Len(t, c.Logprobs.TokenLogprobs, n)
		require.Less(t, c.Logprobs.TokenLogprobs[n-1], 0.0)
		require.Greater(t, c.Logprobs.TokenLogprobs[n-1], -0.1)
		require.Len(t, c.Logprobs.TopLogprobs[n-1], 2)
	}
	require.EqualValues(t, 20, got.Usage.CompletionTokens)
	require.EqualValues(t, got.Usage.PromptTokens+20, got.Usage.TotalTokens)
}

func TestManyPromptsAreAnsweredInOrder(t *testing.T) {
	s := start(t, nil)
	p := completion("", 2)
	p.Prompt = client.CompletionNewParamsPromptUnion{OfArrayOfStrings: []string{"ab12 ab", "cd34 cd"}}
	p.N = client.Int(2)
	got, err := s.client.Completions.New(t.Context(), p)
	require.NoError(t, err)
	var texts []string
	for i, c := range got.Choices {
		require.EqualValues(t, i, c.Index)
		texts = append(texts, c.Text)
	}
	require.Equal(t, []string{"12", "12", "34", "34"}, texts)
}

func TestAPromptCanBeAListOfTokens(t *testing.T) {
	s := start(t, nil)
	p := completion("", 2)
	p.Prompt = client.CompletionNewParamsPromptUnion{OfArrayOfTokens: []int64{1, 'a', 'b', '1', '2', ' ', 'a', 'b'}}
	got, err := s.client.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "12", got.Choices[0].Text)
}

func TestBestOfGivesTheLikelyOnes(t *testing.T) {
	s := start(t, nil)
	p := completion(story+"The code", 30)
	p.Temperature, p.N, p.Seed, p.Logprobs = client.Float(2), client.Int(8), client.Int(3), client.Int(0)
	all, err := s.client.Completions.New(t.Context(), p)
	require.NoError(t, err)
	logprob := func(c client.CompletionChoice) (sum float64) {
		for _, v := range c.Logprobs.TokenLogprobs {
			sum += v
		}
		return sum
	}
	slices.SortStableFunc(all.Choices,
		func(a, b client.CompletionChoice) int { return cmp.Compare(logprob(b), logprob(a)) })
	require.NotEqual(t, all.Choices[0].Text, all.Choices[7].Text)
	p.BestOf, p.N, p.Logprobs = client.Int(8), client.Int(2), param.Opt[int64]{}
	got, err := s.client.Completions.New(t.Context(), p)
	require.NoError(t, err)
	require.Len(t, got.Choices, 2)
	for i, c := range got.Choices {
		require.Equal(t, all.Choices[i].Text, c.Text)
	}
	require.EqualValues(t, 240, got.Usage.CompletionTokens)
}

func TestCompletionStreamsSayTheSame(t *testing.T) {
	s := start(t, nil)
	p := completion(story+"The code of the vault", 10)
	p.N, p.StreamOptions = client.Int(2), client.ChatCompletionStreamOptionsParam{IncludeUsage: client.Bool(true)}
	stream := s.client.Completions.NewStreaming(t.Context(), p)
	texts, ends := [2]string{}, 0
	var used int64
	for stream.Next() {
		chunk := stream.Current()
		for _, c := range chunk.Choices {
			texts[c.Index] += c.Text
			if c.FinishReason != "" {
				ends++
			}
		}
		used += chunk.Usage.CompletionTokens
	}
	require.NoError(t, stream.Err())
	require.Equal(t, [2]string{" is 7Kx-31", " is 7Kx-31"}, texts)
	require.Equal(t, 2, ends)
	require.EqualValues(t, 20, used)
}

func TestChatAnswersAsOpenAIDoes(t *testing.T) {
	s := start(t, nil)
	p := message("Größe: 20 €")
	p.Logprobs, p.TopLogprobs = client.Bool(true), client.Int(1)
	got, err := s.client.Chat.Completions.New(t.Context(), p)
	require.NoError(t, err)
	c := got.Choices[0]
	require.Equal(t, "Größe: 20 €", c.Message.Content)
	require.EqualValues(t, "assistant", c.Message.Role)
	require.Equal(t, "stop", c.FinishReason)
	require.Len(t, c.Logprobs.Content, len("Größe: 20 €")+1)
	require.Len(t, c.Logprobs.Content[0].TopLogprobs, 1)
}

func TestChatStreamsServerSentEvents(t *testing.T) {
	s := start(t, nil)
	stream := s.client.Chat.Completions.NewStreaming(t.Context(), message("Größe: 20 €"))
	accumulated := client.ChatCompletionAccumulator{}
	first := true
	for stream.Next() {
		chunk := stream.Current()
		if first {
			require.Equal(t, "assistant", chunk.Choices[0].Delta.Role)
		}
		first = false
		require.True(t, accumulated.AddChunk(chunk))
	}
	require.NoError(t, stream.Err())
	require.Equal(t, "Größe: 20 €", accumulated.Choices[0].Message.Content)
	require.Equal(t, "stop", accumulated.Choices[0].FinishReason)
}

func TestAClientThatGoesFreesItsBlocks(t *testing.T) {
	s := start(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	p := message(story)
	p.MaxTokens = client.Int(900)
	stream := s.client.Chat.Completions.NewStreaming(ctx, p, option.WithJSONSet("ignore_eos", true))
	require.True(t, stream.Next())
	cancel()
	settle(t, s)
	require.NoError(t, stream.Close())
}

func TestModelsListsTheServedModel(t *testing.T) {
	s := start(t, nil)
	list, err := s.client.Models.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, "demo", list.Data[0].ID)
	one, err := s.client.Models.Get(t.Context(), "demo")
	require.NoError(t, err)
	require.Equal(t, "demo", one.ID)
}

func TestErrorsHaveOpenAIsForm(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.MaxBody = 10000 })
	post := func(path, body string) (int, map[string]any) {
		r, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer r.Body.Close()
		var got struct{ Error map[string]any }
		require.NoError(t, json.NewDecoder(r.Body).Decode(&got))
		return r.StatusCode, got.Error
	}
	tests := []struct {
		name, path, body string
		status           int
		param            any
	}{
		{"no JSON", "/v1/completions", "{", 400, nil},
		{"empty", "/v1/completions", "", 400, nil},
		{"two objects", "/v1/completions", `{} {}`, 400, nil},
		{"too large", "/v1/completions", `{"prompt": "` + strings.Repeat("x", 20000) + `"}`, 413, nil},
		{"other model", "/v1/completions", `{"model": "gpt", "prompt": "x"}`, 404, "model"},
		{"no prompt", "/v1/completions", `{"model": "demo"}`, 400, "prompt"},
		{"prompt of no type", "/v1/completions", `{"model": "demo", "prompt": {"a": 1}}`, 400, "prompt"},
		{"number as text", "/v1/completions", `{"model": "demo", "prompt": "x", "max_tokens": "5"}`, 400, "max_tokens"},
		{"max_tokens", "/v1/completions", `{"model": "demo", "prompt": "x", "max_tokens": 0}`, 400, "max_tokens"},
		{"prompt too long", "/v1/completions", `{"model": "demo", "prompt": "` + strings.Repeat("x", 2000) + `"}`, 400,
			"prompt"},
		{"temperature", "/v1/completions", `{"model": "demo", "prompt": "x", "temperature": 9}`, 400, "temperature"},
		{"n", "/v1/completions", `{"model": "demo", "prompt": "x", "n": 0}`, 400, "n"},
		{"best_of below n", "/v1/completions", `{"model": "demo", "prompt": "x", "n": 3, "best_of": 2}`, 400, "best_of"},
		{"stop", "/v1/completions", `{"model": "demo", "prompt": "x", "stop": 5}`, 400, "stop"},
		{"logit_bias", "/v1/completions", `{"model": "demo", "prompt": "x", "logit_bias": {"a": 5}}`, 400, "logit_bias"},
		{"logprobs", "/v1/completions", `{"model": "demo", "prompt": "x", "logprobs": 50}`, 400, "logprobs"},
		{"suffix", "/v1/completions", `{"model": "demo", "prompt": "x", "suffix": "y"}`, 400, "suffix"},
		{"stream_options without stream", "/v1/completions",
			`{"model": "demo", "prompt": "x", "stream_options": {"include_usage": true}}`, 400, "stream_options"},
		{"no messages", "/v1/chat/completions", `{"model": "demo", "messages": []}`, 400, "messages"},
		{"no role", "/v1/chat/completions", `{"model": "demo", "messages": [{"content": "x"}]}`, 400, "messages"},
		{"picture", "/v1/chat/completions",
			`{"model": "demo", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`, 400, "messages"},
		{"tools", "/v1/chat/completions",
			`{"model": "demo", "messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]}`, 400, "tools"},
		{"a JSON schema", "/v1/chat/completions",
			`{"model": "demo", "messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}}`, 400, "response_format"},
		{"JSON", "/v1/completions", `{"model": "demo", "prompt": "x", "response_format": {"type": "json_object"}}`, 400,
			"response_format"},
		{"a grammar", "/v1/completions", `{"model": "demo", "prompt": "x", "structured_outputs": {"json": {}}}`, 400,
			"structured_outputs"},
		{"top_logprobs alone", "/v1/chat/completions",
			`{"model": "demo", "messages": [{"role": "user", "content": "x"}], "top_logprobs": 2}`, 400, "top_logprobs"},
		{"no such path", "/v1/embeddings", `{}`, 404, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			status, e := post(test.path, test.body)
			require.Equal(t, test.status, status, e)
			require.Equal(t, test.param, e["param"], e)
			require.Equal(t, "invalid_request_error", e["type"])
			require.NotEmpty(t, e["message"])
		})
	}
	_, e := post("/v1/responses", `{"model": "demo", "input": "x"}`)
	require.Equal(t, "There is no POST /v1/responses here. This server has POST /v1/completions, /v1/chat/completions, /tokenize and /detokenize, and GET /v1/models, /metrics, /version, /health and /memory.", e["message"])
	var apiError *client.Error
	_, err := s.client.Completions.New(t.Context(), completion("x", 0))
	require.ErrorAs(t, err, &apiError)
	require.Equal(t, 400, apiError.StatusCode)
	require.Equal(t, "max_tokens", apiError.Param)
}

func TestKeysAreAskedFor(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.APIKeys = []string{"other", "secret"} })
	_, err := s.client.Models.List(t.Context())
	require.NoError(t, err)
	for _, key := range []string{"", "wrong", "secretx"} {
		_, err := s.client.Models.List(t.Context(), option.WithAPIKey(key))
		var apiError *client.Error
		require.ErrorAs(t, err, &apiError)
		require.Equal(t, 401, apiError.StatusCode)
	}
	r, err := http.Get(s.url + "/health")
	require.NoError(t, err)
	require.Equal(t, 200, r.StatusCode)
	require.NoError(t, r.Body.Close())
}

func TestAFullQueueIsSaid(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) {
		c.MaxNumSeqs, c.MaxWaiting, c.MaxModelLen, c.KVCacheBytes = 1, 1, 4096, 64<<20
	})
	p := completion(story, 4000) // the first goes on until all have come
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var streams []io.Closer
	refused := 0
	for range 5 {
		stream := s.client.Completions.NewStreaming(ctx, p, option.WithJSONSet("ignore_eos", true))
		streams = append(streams, stream)
		var apiError *client.Error
		if err := stream.Err(); err != nil {
			require.ErrorAs(t, err, &apiError)
			require.Equal(t, 429, apiError.StatusCode)
			require.Equal(t, "1", apiError.Response.Header.Get("Retry-After"))
			refused++
		}
	}
	require.Equal(t, 3, refused, "one runs and one waits")
	cancel()
	for _, c := range streams {
		_ = c.Close()
	}
}
