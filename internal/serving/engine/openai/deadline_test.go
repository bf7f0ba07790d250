package openai_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine/openai"
)

// tight is a listener for connections with small buffers. If the client does not read, the server soon waits for it.
type tight struct{ net.Listener }

func (l tight) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

// startTight returns a server with such a listener. The caller starts it.
func startTight(t *testing.T, c openai.Config) *httptest.Server {
	c.Engine, c.Name, c.Metrics = start(t, nil).engine, "demo", openai.NewMetrics("demo")
	server := httptest.NewUnstartedServer(openai.New(c))
	server.Listener = tight{server.Listener}
	return server
}

// connect opens a connection with a small buffer for what it reads. It returns the connection and the text of a request,
// which it does not send.
func connect(t *testing.T, server *httptest.Server, method, path, body string) (net.Conn, string) {
	c, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.(*net.TCPConn).SetReadBuffer(4<<10))
	return c, fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, len(body), body)
}

// Ensure that if the client does not read an answer, the connection is closed and the record of the
// request says so.
func TestAnAnswerThatIsNotReadIsGivenUp(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) error {
		_, _ = io.WriteString(w, strings.Repeat("page ", 1<<16))
		return nil
	}
	failed := make(chan openai.Record, 8) // more than there are connections
	server := startTight(t, openai.Config{
		Bounds: openai.Bounds{WriteTimeout: 20 * time.Millisecond},
		Pages:  map[string]func(http.ResponseWriter, *http.Request) error{"GET /page": page},
		Record: func(r openai.Record) {
			if r.Refused() {
				failed <- r
			}
		},
	})
	closed := make(chan struct{}, 1)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	long := strings.Repeat("x", 100_000)
	for _, test := range []struct{ name, method, path, body string }{
		{"tokens", "POST", "/tokenize", demo + `"return_token_strs": true, "prompt": "` + long + `"}`},
		{"a text", "POST", "/detokenize", `{"tokens": [120` + strings.Repeat(",120", 100_000) + `]}`},
		{"an answer", "POST", texts, demo + `"prompt": "` + long[:900] + `", "max_tokens": 100, "logprobs": 20, "echo": true}`},
		{"a stream", "POST", texts, demo + `"prompt": "x", "max_tokens": 1000, "logprobs": 20, "ignore_eos": true, "stream": true}`},
		{"a page", "GET", "/page", ""},
		{"metrics", "GET", "/metrics", ""},
		{"many small answers", "GET", "/v1/models", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, request := connect(t, server, test.method, test.path, test.body)
			if test.body == "" {
				request = strings.Repeat(request, 4000)
			}
			go func() { _, _ = io.WriteString(c, request) }() // fails when the server has closed the connection
			<-closed
			r := <-failed
			require.Equal(t, test.path, r.Path)
			require.Equal(t, 200, r.Status)
			require.Equal(t, "The client did not read the answer in time.", r.Reason)
		})
	}
}

// Ensure that the server decodes other bodies while a client does not read its answer.
func TestAnAnswerThatIsNotReadHoldsNobodyUp(t *testing.T) {
	server := startTight(t, openai.Config{
		Bounds: openai.Bounds{WriteTimeout: time.Hour},
	})
	server.Start()
	t.Cleanup(server.CloseClientConnections)
	for path, body := range map[string]string{
		"/tokenize":   demo + `"return_token_strs": true, "prompt": "` + strings.Repeat("x", 100_000) + `"}`,
		"/detokenize": `{"tokens": [120` + strings.Repeat(",120", 100_000) + `]}`,
	} {
		for range runtime.GOMAXPROCS(0) + 2 { // more than are decoded at a time
			c, request := connect(t, server, "POST", path, body)
			_, err := io.WriteString(c, request)
			require.NoError(t, err)
			_, err = io.ReadFull(c, make([]byte, 1))
			require.NoError(t, err)
		}
	}
}

// Ensure that a client gets the whole of an answer that is written in several pieces.
func TestAnAnswerThatIsReadIsWhole(t *testing.T) {
	s := start(t, nil)
	text := strings.Repeat("page ", 1<<18)
	server := httptest.NewServer(openai.New(openai.Config{
		Engine:      s.engine,
		ModelConfig: openai.ModelConfig{Name: "demo"},
		Metrics:     openai.NewMetrics("demo"),
		Pages: map[string]func(http.ResponseWriter, *http.Request) error{
			"GET /page": func(w http.ResponseWriter, _ *http.Request) error {
				n, err := io.WriteString(w, text)
				require.Equal(t, len(text), n)
				require.NoError(t, http.NewResponseController(w).Flush())
				return err
			}},
	}))
	t.Cleanup(server.Close)
	r, err := http.Get(server.URL + "/page")
	require.NoError(t, err)
	defer r.Body.Close()
	got, err := io.ReadAll(bufio.NewReader(r.Body))
	require.NoError(t, err)
	require.Equal(t, text, string(got))
}
