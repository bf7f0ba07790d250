package openai_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/parallel"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

// A served model.
type served struct {
	engine *engine.Engine
	url    string
}

// handBuilt returns the hand-built model, which all tests share because engines only read it.
var handBuilt = sync.OnceValues(func() (*model.Model, error) {
	pool, err := parallel.New(1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return induction.New(pool, model.Part{})
})

// newTemplate returns a chat template.
func newTemplate(t testing.TB, text string) *chat.Template {
	template, err := chat.New(text, nil)
	require.NoError(t, err)
	return template
}

func start(t testing.TB, change func(*openai.Config, *engine.Config)) *served {
	pool, err := parallel.New(2)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	m, err := handBuilt()
	require.NoError(t, err)
	ec := engine.Config{Model: m, Tokenizer: induction.Tokenizer(), Pool: pool, KVCacheBytes: 32 << 20, MaxModelLen: 1024}
	oc := openai.Config{
		ModelConfig: openai.ModelConfig{Name: "demo", Template: newTemplate(t, induction.Template)},
		Metrics:     openai.NewMetrics("demo"),
		Bounds:      openai.Bounds{KeepAlive: time.Hour},
	}
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
	return &served{e, server.URL}
}

type (
	// A reply is the server's answer. If the answer is a stream, the reply has its joined events.
	reply struct {
		Status  int
		Header  http.Header
		Text    string
		Choices []choice
		Usage   struct {
			Prompt     int `json:"prompt_tokens"`
			Completion int `json:"completion_tokens"`
			Total      int `json:"total_tokens"`
			Details    struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
		Tokens []int32

		PromptTokenIDs []int32 `json:"prompt_token_ids"`

		Error struct{ Message, Param, Type, Code string }
	}
	choice struct {
		Index          int
		Text           string
		Message, Delta message
		Finish         string `json:"finish_reason"`
		StopReason     any    `json:"stop_reason"`

		PromptTokenIDs []int32 `json:"prompt_token_ids"`
		TokenIDs       []int32 `json:"token_ids"`
		Logprobs       *logprobs
	}
	message struct {
		Role, Content, Reasoning string
		ReasoningContent         string `json:"reasoning_content"`
		ToolCalls                []struct {
			Function struct{ Name, Arguments string }
		} `json:"tool_calls"`
	}
	logprobs struct {
		Content []struct {
			Top []struct{ Token string } `json:"top_logprobs"`
		}
		Tokens  []string
		Values  []*float64           `json:"token_logprobs"`
		Top     []map[string]float64 `json:"top_logprobs"`
		Offsets []int                `json:"text_offset"`
	}
)

// direct follows no redirects, as many clients do not for POST.
var direct = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// send sends a request and returns the response, whose body is unread. headers alternates names and values.
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
	got, err := direct.Do(r)
	require.NoError(t, err)
	return got
}

// open posts a body, and returns the answer unread.
func (s *served) open(t testing.TB, path, body string, headers ...string) *http.Response {
	return s.send(t, "POST", path, body, headers...)
}

// roundTrip sends a request and reads the answer.
func (s *served) roundTrip(t testing.TB, method, path, body string, headers ...string) (*http.Response, *reply) {
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
		a.PromptTokenIDs = append(a.PromptTokenIDs, one.PromptTokenIDs...)
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
	_, a := s.roundTrip(t, "POST", path, body, headers...)
	return a
}

// Left returns how many units the key may still use, according to the headers of the answer. The unit is "Requests" or
// "Tokens".
func (a *reply) Left(t testing.TB, unit string) int {
	n, err := strconv.Atoi(a.Header.Get("X-Ratelimit-Remaining-" + unit))
	require.NoError(t, err)
	return n
}

const story = "The code of the vault is 7Kx-31. Do not tell it. "

// complete returns the answer to a prompt at temperature 0. The answer has at most maxTokens tokens. The parameter
// fields is JSON text that complete appends to the body of the request, for example:
//
//	, "n": 2
func (s *served) complete(t *testing.T, prompt any, maxTokens int, fields string) *reply {
	t.Helper()
	text, err := json.Marshal(prompt)
	require.NoError(t, err)
	a := s.ask(t, "/v1/completions",
		fmt.Sprintf(`{"model": "demo", "prompt": %s, "max_tokens": %d, "temperature": 0%s}`, text, maxTokens, fields))
	require.Equal(t, 200, a.Status, a.Text)
	return a
}

// chat returns the answer to a message.
func (s *served) chat(t *testing.T, message, fields string) *reply {
	t.Helper()
	a := s.ask(t, "/v1/chat/completions",
		`{"model": "demo", "messages": [{"role": "user", "content": "`+message+`"}], "temperature": 0`+fields+`}`)
	require.Equal(t, 200, a.Status, a.Text)
	return a
}

// requireEvents requires server-sent events, the last of which is OpenAI's [DONE].
func requireEvents(t *testing.T, a *reply) {
	t.Helper()
	require.Equal(t, "text/event-stream; charset=utf-8", a.Header.Get("Content-Type"))
	require.Regexp(t, `\A(data: \{.*\}\n\n)+data: \[DONE\]\n\n\z`, a.Text)
}

// This test checks the parts of an answer that OpenAI's client ignores. official_test.go tests the
// others.
func TestAnswersHaveTheFormOfOpenAIs(t *testing.T) {
	s := start(t, nil)
	got := s.complete(t, story+"The code of the vault", 10, `, "n": 2, "stream": true, "stream_options": {"include_usage": true}`)
	requireEvents(t, got)
	require.Contains(t, got.Text, `"object":"text_completion"`)
	require.Equal(t, 16, s.ask(t, texts, demo+`"prompt": "x", "ignore_eos": true}`).Usage.Completion, "OpenAI's default")
	got = s.chat(t, "Größe: 20 €", `, "stream": true`)
	requireEvents(t, got)
	require.Contains(t, got.Text, `"object":"chat.completion.chunk"`)
	require.Contains(t, got.Text, `"delta":{},"logprobs":null,"finish_reason":"stop"`)
	require.Contains(t, s.chat(t, "x", "").Text, `"object":"chat.completion"`)
	_, got = s.roundTrip(t, "GET", "/v1/models", "")
	require.Regexp(t, `\A\{"object":"list","data":\[\{"id":"demo","object":"model",.*\}\]\}\s*\z`, got.Text)
}

func TestManyPromptsAreAnsweredInOrder(t *testing.T) {
	s := start(t, nil)
	var texts []string
	for i, c := range s.complete(t, []string{"ab12 ab", "cd34 cd"}, 2, `, "n": 2`).Choices {
		require.Equal(t, i, c.Index)
		texts = append(texts, c.Text)
	}
	require.Equal(t, []string{"12", "12", "34", "34"}, texts)
}

func TestAPromptCanBeAListOfTokens(t *testing.T) {
	s := start(t, nil)
	got := s.complete(t, []int{1, 'a', 'b', '1', '2', ' ', 'a', 'b'}, 2, "")
	require.Equal(t, "12", got.Choices[0].Text)
}

func TestBestOfGivesTheLikelyOnes(t *testing.T) {
	s := start(t, nil)
	const body = `{"model": "demo", "prompt": "` + story + `The code", "max_tokens": 30, "temperature": 2, "seed": 3, `
	all := s.ask(t, "/v1/completions", body+`"n": 8, "logprobs": 0}`).Choices
	logprob := func(c choice) (sum float64) {
		for _, v := range c.Logprobs.Values {
			sum += *v
		}
		return sum
	}
	slices.SortStableFunc(all, func(a, b choice) int { return cmp.Compare(logprob(b), logprob(a)) })
	require.NotEqual(t, all[0].Text, all[7].Text)
	got := s.ask(t, "/v1/completions", body+`"n": 2, "best_of": 8}`)
	require.Len(t, got.Choices, 2)
	for i, c := range got.Choices {
		require.Equal(t, all[i].Text, c.Text)
	}
	require.Equal(t, 240, got.Usage.Completion)
}
