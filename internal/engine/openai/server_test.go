package openai_test

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
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

type (
	// A reply is what the server answers, the events of a stream together.
	reply struct {
		Status  int
		Header  http.Header
		Text    string
		Choices []struct {
			Index    int
			Text     string
			Finish   string `json:"finish_reason"`
			Logprobs *logprobs
		}
		Usage struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Total      int `json:"total_tokens"`
		}
		Tokens []int32
		Error  struct{ Message, Param, Type string }
	}
	logprobs struct {
		Tokens  []string
		Values  []*float64           `json:"token_logprobs"`
		Top     []map[string]float64 `json:"top_logprobs"`
		Offsets []int                `json:"text_offset"`
	}
)

// send sends a request with headers, of which each name is followed by the value, and returns the answer unread.
func (s *served) send(t testing.TB, method, path, body string, headers ...string) *http.Response {
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		switch name, value := headers[i], headers[i+1]; {
		case name == "Host":
			r.Host = value
		case name != "":
			r.Header.Set(name, value)
		}
	}
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	return got
}

// open posts a body, and returns the answer unread.
func (s *served) open(t testing.TB, path, body string, headers ...string) *http.Response {
	return s.send(t, "POST", path, body, headers...)
}

// do sends a request and reads the answer.
func (s *served) do(t testing.TB, method, path, body string, headers ...string) (*http.Response, *reply) {
	r := s.send(t, method, path, body, headers...)
	defer r.Body.Close()
	data, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	a := &reply{Status: r.StatusCode, Header: r.Header, Text: string(data)}
	for line := range strings.Lines(a.Text) {
		one := reply{}
		if json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &one) != nil {
			continue
		}
		a.Choices, a.Tokens = append(a.Choices, one.Choices...), append(a.Tokens, one.Tokens...)
		if one.Usage.Total > 0 {
			a.Usage = one.Usage
		}
		if one.Error.Message != "" {
			a.Error = one.Error
		}
	}
	return r, a
}

// ask posts a body and reads the answer.
func (s *served) ask(t testing.TB, path, body string, headers ...string) *reply {
	_, a := s.do(t, "POST", path, body, headers...)
	return a
}

// Left is the rest of the key's allowance, as the headers have it.
func (a *reply) Left(t testing.TB, what string) int {
	n, err := strconv.Atoi(a.Header.Get("X-Ratelimit-Remaining-" + what))
	require.NoError(t, err)
	return n
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

func TestTheOfficialClientReadsModelsAndErrors(t *testing.T) {
	s := start(t, nil)
	list, err := s.client.Models.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, "demo", list.Data[0].ID)
	one, err := s.client.Models.Get(t.Context(), "demo")
	require.NoError(t, err)
	require.Equal(t, "demo", one.ID)
	var apiError *client.Error
	_, err = s.client.Completions.New(t.Context(), completion("x", 0))
	require.ErrorAs(t, err, &apiError)
	require.Equal(t, 400, apiError.StatusCode)
	require.Equal(t, "max_tokens", apiError.Param)
}
