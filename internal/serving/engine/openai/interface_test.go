package openai_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/anthropic"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/serving/engine/openai/responses"
	"llmmemory/internal/serving/model/induction"
)

// The paths of the other interfaces.
const (
	messages      = "/v1/messages"
	countMessages = "/v1/messages/count_tokens"
	respond       = "/v1/responses"
)

// startAll serves all interfaces.
func startAll(t testing.TB, change func(*openai.Config, *engine.Config)) *served {
	return start(t, func(o *openai.Config, e *engine.Config) {
		o.Interfaces = allInterfaces()
		if change != nil {
			change(o, e)
		}
	})
}

func allInterfaces() []openai.Interface {
	return []openai.Interface{responses.Interface(), anthropic.Interface()}
}

// bodyOf returns the body of a request to the interface with the given path. It leaves out the closing brace, so that
// the caller can add fields. The body contains the text. Except for countMessages, it also limits the answer to
// maxTokens tokens.
func bodyOf(path, text string, maxTokens int) string {
	quoted, _ := json.Marshal(text)
	switch path {
	case messages:
		return fmt.Sprintf(demo+`"messages": [{"role": "user", "content": %s}], "max_tokens": %d, "temperature": 0`, quoted, maxTokens)
	case countMessages:
		return fmt.Sprintf(demo+`"messages": [{"role": "user", "content": %s}]`, quoted)
	}
	return fmt.Sprintf(demo+`"input": %s, "max_output_tokens": %d, "temperature": 0`, quoted, maxTokens)
}

// requireError requires an error in the form of the path's interface. kind is its type in Anthropic's interface.
func requireError(t *testing.T, path string, a *reply, status int, kind, says string) {
	t.Helper()
	require.Equal(t, status, a.Status, a.Text)
	require.Contains(t, a.Error.Message, says)
	if path == respond {
		require.True(t, strings.HasPrefix(a.Text, `{"error":{"message":`), a.Text)
		return
	}
	require.True(t, strings.HasPrefix(a.Text, `{"type":"error","error":{"type":"`+kind+`","message":`), a.Text)
	require.Contains(t, a.Text, `"request_id":"`+a.Header.Get("Request-Id")+`"`)
	require.NotEmpty(t, a.Header.Get("Request-Id"))
}

// Ensure that the limits of /v1/chat/completions also apply to the other interfaces. Each interface must report
// errors in its own format.
func TestOtherInterfacesHaveTheLimitsOfChats(t *testing.T) {
	s := startAll(t, nil)
	small := startAll(t, func(o *openai.Config, _ *engine.Config) { o.MaxBody = 1000 })
	keys := startAll(t, func(o *openai.Config, _ *engine.Config) {
		o.APIKeys, o.Limits = []string{"a"}, openai.Limits{Requests: 1, Tokens: 2000}
	})
	long := strings.Repeat("hello you ", 400_000)
	for _, path := range []string{messages, countMessages, respond} {
		t.Run(path, func(t *testing.T) {
			body := bodyOf(path, "x", 5)
			a := small.ask(t, path, bodyOf(path, strings.Repeat("x", 1000), 5)+"}")
			requireError(t, path, a, 413, "request_too_large", "larger than 1000 bytes")
			a = s.ask(t, path, body+`, "metadata": [`+strings.Repeat("{},", 1<<17)+"{}]}")
			requireError(t, path, a, 400, "invalid_request_error", "more than 65536 values")
			a = s.ask(t, path, strings.Replace(body, "demo", "other", 1)+"}")
			requireError(t, path, a, 404, "not_found_error", `The model "other" does not exist`)
			a = s.ask(t, path, body+`, "n_predict": 3}`)
			requireError(t, path, a, 400, "invalid_request_error", "n_predict")
			a = s.ask(t, path, body+`, "temprature": 3}`)
			requireError(t, path, a, 400, "invalid_request_error", `"temprature" is not a field`)
			a = s.ask(t, path, body+"}", "Content-Type", "text/plain")
			requireError(t, path, a, 415, "invalid_request_error", "application/json")
			_, a = s.roundTrip(t, "DELETE", path, "")
			requireError(t, path, a, 405, "invalid_request_error", "takes POST")
			a = keys.ask(t, path, body+"}", "X-Api-Key", "wrong")
			requireError(t, path, a, 401, "authentication_error", "The API key is missing or wrong")

			bytes := allocated(func() { a = s.ask(t, path, bodyOf(path, long, 5)+"}") })
			requireError(t, path, a, 400, "invalid_request_error", " tokens")
			require.Less(t, bytes, 20*len(long))
			if path != countMessages {
				require.Contains(t, a.Error.Message, map[string]string{messages: "prompt is too long: 131073 tokens > 1023 maximum",
					respond: "Your input exceeds the context window of this model."}[path])
			}
		})
	}
	require.Equal(t, 200, keys.ask(t, messages, bodyOf(messages, "x", 5)+"}", "X-Api-Key", "a", "Anthropic-Version", "2023-06-01").Status)
	for _, path := range []string{messages, respond} {
		a := keys.ask(t, path, bodyOf(path, "x", 5)+"}", withKey("a")...)
		requireError(t, path, a, 429, "rate_limit_error", "The limit is 1 requests in a minute")
		require.NotEmpty(t, a.Header.Get("Retry-After"))
	}
	_, a := s.roundTrip(t, "GET", "/v1/nothing", "")
	require.Contains(t, a.Error.Message, "/v1/chat/completions, /v1/embeddings, /v1/rerank")
	require.Contains(t, a.Error.Message, "/v1/responses, /v1/messages, /v1/messages/count_tokens, and GET /v1/models")
}

func TestTheQueueOfOtherInterfacesIsThatOfChats(t *testing.T) {
	for _, path := range []string{messages, respond} {
		s := startAll(t, func(_ *openai.Config, c *engine.Config) { c.MaxNumSeqs, c.MaxWaiting = 1, 1 })
		var open []*http.Response
		for range 2 {
			r := s.open(t, path, bodyOf(path, "12345678 12345678 12345678", 1000)+`, "stream": true}`)
			t.Cleanup(func() { _ = r.Body.Close() }) // before the server is closed, which waits for it
			open = append(open, r)
		}
		a := s.ask(t, path, bodyOf(path, "x", 5)+"}")
		requireError(t, path, a, 429, "rate_limit_error", "queue is full")
		for _, r := range open { // before its end, which cancels the request
			require.NoError(t, r.Body.Close())
		}
		settle(t, s)
		require.Contains(t, s.metrics(t), `finished_reason="abort",model_name="demo"} 2`)
		require.NoError(t, s.engine.Close())
		a = s.ask(t, path, bodyOf(path, "x", 5)+"}")
		requireError(t, path, a, 503, "overloaded_error", "shutting down")
	}
}

func TestAStreamOfAnotherInterfaceThatIsNotReadIsGivenUp(t *testing.T) {
	failed := make(chan openai.Record, 2)
	server := startTight(t, openai.Config{
		Bounds:      openai.Bounds{WriteTimeout: 20 * time.Millisecond},
		Interfaces:  allInterfaces(),
		ModelConfig: openai.ModelConfig{Template: newTemplate(t, induction.Template)},
		Record:      func(r openai.Record) { failed <- r },
	})
	server.Start()
	t.Cleanup(server.Close)
	for _, path := range []string{messages, respond} {
		// The model repeats a text of 440 bytes, in events of 100 bytes or more.
		c, request := connect(t, server, "POST", path, bodyOf(path, strings.Repeat("some words ", 40), 2000)+`, "stream": true}`)
		_, err := io.WriteString(c, request)
		require.NoError(t, err)
		r := <-failed
		require.Equal(t, []any{path, 200, "The client did not read the answer in time."}, []any{r.Path, r.Status, r.Reason})
	}
}

// Ensure that a stream sends its headers at once, and events while no token is ready: the timeouts of clients such as
// Codex do not count comments.
func TestStreamsOfOtherInterfacesThatWaitAreKeptOpen(t *testing.T) {
	for path, want := range map[string]string{messages: "event: ping\n", respond: "event: response.in_progress\n"} {
		s, release := held(t, func(o *openai.Config) { o.Interfaces = allInterfaces() })
		a := s.open(t, path, bodyOf(path, strings.Repeat("x", 40), 2)+`, "stream": true}`)
		defer a.Body.Close()
		require.Equal(t, 200, a.StatusCode)
		lines := bufio.NewReader(a.Body)
		for seen := 0; seen < 3; { // the first response.in_progress is at the beginning
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			require.NotContains(t, line, "delta")
			if line == want {
				seen++
			}
		}
		release()
		rest, err := io.ReadAll(lines)
		require.NoError(t, err)
		require.Contains(t, string(rest), "delta")
	}
}

func TestAnErrorOfTheEngineIsAnErrorOfTheInterface(t *testing.T) {
	s := startDamaged(t, "ln_f.bias", 0, nil)
	all := openai.New(openai.Config{
		Engine:      s.engine,
		ModelConfig: openai.ModelConfig{Name: "demo", Template: newTemplate(t, induction.Template)},
		Metrics:     openai.NewMetrics("demo"),
		Interfaces:  allInterfaces(),
	})
	server := httptest.NewServer(all)
	t.Cleanup(server.Close)
	s.url = server.URL
	for path, event := range map[string]string{
		messages: "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"" + notFinite,
		respond:  "event: response.failed\ndata: {\"type\":\"response.failed\",\"sequence_number\":2,",
	} {
		a := s.ask(t, path, bodyOf(path, "x", 5)+"}")
		requireError(t, path, a, 500, "api_error", notFinite)
		a = s.ask(t, path, bodyOf(path, "x", 5)+`, "stream": true}`)
		require.Contains(t, a.Text, event)
		require.Contains(t, a.Text, notFinite)
	}
}
