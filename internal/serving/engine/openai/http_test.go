package openai_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

// Ensure that a request is refused if the server does not support its media type, content encoding, method or path. A
// media type may have parameters, and a missing media type counts as JSON.
func TestWhatIsNoRequestForAnAnswerIsRefused(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.Version = "1.2.3" })
	const body, kind = text + `"n": 1}`, "Content-Type"
	for _, test := range []struct {
		method, path string
		header       [2]string
		status       int
		says         string
	}{
		{"POST", texts, [2]string{kind, "text/plain"}, 415, `"text/plain"; send JSON`},
		{"POST", texts, [2]string{kind, "json"}, 415, "application/json"},
		{"POST", texts, [2]string{kind, "application/json; charset=utf-8"}, 200, ""},
		{"POST", texts, [2]string{kind, "Application/JSON"}, 200, ""},
		{"POST", texts, [2]string{kind, ""}, 200, ""},
		{"POST", texts, [2]string{"Content-Encoding", "gzip"}, 415, `Content-Encoding is "gzip"`},
		{"POST", texts, [2]string{"Content-Encoding", "identity"}, 200, ""},
		{"DELETE", texts, [2]string{}, 405, "takes POST"},
		{"DELETE", chats, [2]string{}, 405, "takes POST"},
		{"DELETE", "/v1/models", [2]string{}, 405, "takes GET"},
		{"POST", "/version", [2]string{}, 405, "takes GET"},
		{"POST", "/v1/audio/speech", [2]string{}, 404, "There is no POST /v1/audio/speech here. This server has POST " +
			"/v1/completions, /v1/chat/completions, /v1/embeddings, /v1/rerank, /rerank, /v2/rerank, /infill, /tokenize, " +
			"/detokenize, /sleep, /wake_up, and GET /v1/models, /version, /is_sleeping, /metrics, /health and /memory."},
		{"POST", "/v1/models/other", [2]string{}, 404, "There is no POST"},
		{"GET", "/v1/models/other", [2]string{}, 404, `The model "other" does not exist; this server has "demo".`},
	} {
		r, a := s.roundTrip(t, test.method, test.path, body, test.header[:]...)
		require.Equal(t, test.status, r.StatusCode, "%+v: %s", test, a.Text)
		require.Contains(t, a.Error.Message, test.says)
		if test.status == 405 {
			require.Contains(t, a.Error.Message, r.Header.Get("Allow"))
		}
	}
	_, a := s.roundTrip(t, "GET", "/version", "")
	require.JSONEq(t, `{"version": "1.2.3"}`, a.Text)
}

func TestKeysAreAskedFor(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.APIKeys = []string{"other", "secret"} })
	for header, status := range map[string]int{"Bearer secret": 200, "bearer other": 200, "BEARER secret": 200, "": 401,
		"Bearer wrong": 401, "Bearer secretx": 401, "Basic secret": 401} {
		r, _ := s.roundTrip(t, "GET", "/v1/models", "", "Authorization", header)
		require.Equal(t, status, r.StatusCode, header)
	}
	for key, status := range map[string]int{"secret": 200, "other": 200, "wrong": 401, "": 401} {
		r, _ := s.roundTrip(t, "GET", "/v1/models", "", "X-Api-Key", key)
		require.Equal(t, status, r.StatusCode, key)
	}
	r, _ := s.roundTrip(t, "GET", "/health", "")
	require.Equal(t, 200, r.StatusCode)
}

func TestAPathMayHaveMoreSlashes(t *testing.T) {
	s := start(t, nil)
	for path, method := range map[string]string{
		"/v1/models/": "GET", "/v1/models/demo/": "GET", "/health/": "GET", "/metrics/": "GET", "/v1/completions/": "POST",
		"/v1/chat/completions/": "POST", "/v1//chat/completions": "POST", "//v1/completions": "POST", "/v1/./models": "GET",
		"/v1/x/../completions": "POST", "/v1//models//demo": "GET", "//": "", "/": "",
	} {
		body := text + `"n": 1}`
		if strings.Contains(path, "chat") {
			body = talk + `"n": 1}`
		}
		if method == "" { // there is nothing
			r, a := s.roundTrip(t, "GET", path, "")
			require.Equal(t, 404, r.StatusCode, path)
			require.Contains(t, a.Error.Message, "There is no GET / here.")
			continue
		}
		r, a := s.roundTrip(t, method, path, body)
		require.Equal(t, 200, r.StatusCode, "%s: %s", path, a.Text)
	}
}

// Ensure that web pages of the allowed origins can send requests and read answers and errors. A browser first asks for
// permission, in a request without the API key.
func TestPagesOfAllowedOriginsCanUseTheServer(t *testing.T) {
	startWith := func(keys []string, origins ...string) *served {
		o, err := openai.ParseOrigins(origins)
		require.NoError(t, err)
		return start(t, func(c *openai.Config, _ *engine.Config) { c.Local, c.APIKeys, c.Origins = true, keys, o })
	}
	const page = "https://app.example"
	some, all, none := startWith([]string{"secret"}, "https://App.Example", "http://localhost:3000"), startWith(nil, "*"), startWith(nil)
	for _, test := range []struct {
		name          string
		server        *served
		method        string
		origin, key   string
		want          int
		allow, answer string
	}{
		{"an allowed page asks", some, "OPTIONS", page, "", 204, page, ""},
		{"an allowed page", some, "POST", page, "secret", 200, page, "choices"},
		{"a port", some, "POST", "http://localhost:3000", "secret", 200, "http://localhost:3000", "choices"},
		{"its error can be read", some, "POST", page, "wrong", 401, page, "The API key"},
		{"another page asks", some, "OPTIONS", "https://evil.example", "", 403, "", "--allowed-origins"},
		{"another page", some, "POST", "https://evil.example", "secret", 403, "", "--allowed-origins"},
		{"another port", some, "POST", "http://localhost:3001", "secret", 403, "", "--allowed-origins"},
		{"a page without an origin", some, "POST", "null", "secret", 403, "", "--allowed-origins"},
		{"a program", some, "POST", "", "secret", 200, "", "choices"},
		{"all pages", all, "POST", page, "", 200, page, "choices"},
		{"all pages ask", all, "OPTIONS", "null", "", 204, "null", ""},
		{"no page asks", none, "OPTIONS", page, "", 403, "", "--allowed-origins"},
		{"no page", none, "POST", page, "", 403, "", "--allowed-origins"},
	} {
		t.Run(test.name, func(t *testing.T) {
			headers := []string{"", ""}
			if test.origin != "" {
				headers = []string{"Origin", test.origin, "Sec-Fetch-Site", "cross-site"}
			}
			if test.method == "OPTIONS" {
				headers = append(headers, "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers",
					"authorization,x-stainless-lang")
			}
			if test.key != "" {
				headers = append(headers, "Authorization", "Bearer "+test.key)
			}
			r, a := test.server.roundTrip(t, test.method, texts, text+`"n": 1}`, headers...)
			require.Equal(t, test.want, r.StatusCode, a.Text)
			require.Equal(t, test.allow, r.Header.Get("Access-Control-Allow-Origin"))
			require.Contains(t, a.Text, test.answer)
			require.Equal(t, test.server != none, r.Header.Get("Vary") == "Origin", "caches know what the answer depends on")
			if r.StatusCode == 204 {
				require.Equal(t, "GET, POST", r.Header.Get("Access-Control-Allow-Methods"))
				require.Equal(t, "authorization,x-stainless-lang", r.Header.Get("Access-Control-Allow-Headers"))
			}
		})
	}
	for _, bad := range []string{"app.example", "https://app.example/", "null", "", `["https://app.example"]`} {
		_, err := openai.ParseOrigins([]string{bad})
		require.ErrorContains(t, err, "give one as browsers send it", bad)
	}
}

func TestAWebPageFromElsewhereCannotUseAServerOfThisMachine(t *testing.T) {
	open := start(t, func(c *openai.Config, _ *engine.Config) { c.Local = true })
	public := start(t, nil)
	keyed := start(t, func(c *openai.Config, _ *engine.Config) { c.Local, c.APIKeys = true, []string{"secret"} })
	for _, test := range []struct {
		name          string
		server        *served
		host          string
		header, holds string
		method, path  string
		want          int
	}{
		{"a program", open, "", "", "", "POST", texts, 200},
		{"a form of another site", open, "", "Sec-Fetch-Site", "cross-site", "POST", texts, 403},
		{"another port", open, "", "Sec-Fetch-Site", "same-site", "POST", texts, 403},
		{"an older browser", open, "", "Origin", "http://example.com", "POST", texts, 403},
		{"a page without an origin", open, "", "Origin", "null", "POST", texts, 403},
		{"its page", open, "", "Sec-Fetch-Site", "same-origin", "POST", texts, 200},
		{"a name made an address of this machine", open, "example.com:8000", "Sec-Fetch-Site", "same-origin", "POST", texts,
			403},
		{"such a name, reading", open, "example.com", "", "", "GET", "/metrics", 403},
		{"this machine by name", open, "localhost:8000", "", "", "POST", texts, 200},
		{"this machine by name, in capitals", open, "LOCALHOST", "", "", "POST", texts, 200},
		{"a subdomain", open, "llm.localhost:8000", "", "", "POST", texts, 200},
		{"IPv6", open, "[::1]:8000", "", "", "POST", texts, 200},
		{"IPv6, no port", open, "[::1]", "", "", "POST", texts, 200},
		{"not quite this machine", open, "localhost.example.com", "", "", "POST", texts, 403},
		{"a server for others has any name", public, "example.com", "", "", "POST", texts, 200},
		{"who has the key may use any name", keyed, "example.com", "Authorization", "Bearer secret", "POST", texts, 200},
		{"a key does not help another site", keyed, "", "Origin", "http://example.com", "POST", texts, 403},
	} {
		r, a := test.server.roundTrip(t, test.method, test.path, text+`"n": 1}`, "Host", test.host, test.header, test.holds)
		require.Equal(t, test.want, r.StatusCode, "%s: %s", test.name, a.Text)
	}
}

// dial sends the beginning of a completion.
func (s *served) dial(t *testing.T, rest string) *net.TCPConn { return s.dialPath(t, texts, rest) }

// dialPath sends the beginning of a request to a path.
func (s *served) dialPath(t *testing.T, path, rest string) *net.TCPConn {
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\n"+rest)
	require.NoError(t, err)
	return c.(*net.TCPConn)
}

// Ensure that a client gets status 413 for a body over the limit. The client may wait before it sends the rest, or
// may send everything before it reads.
func TestABodyThatIsTooLargeIsRefused(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.MaxBody = 1000 })
	const size = 64 << 20                       // more than the sockets' buffers hold
	piece := []byte(strings.Repeat(" ", 1<<20)) // JSON may begin with it
	for _, test := range []struct {
		begin string
		sends bool
	}{
		{"Content-Length: 2000\r\nExpect: 100-continue\r\n\r\n", false},
		{"Content-Length: 2000\r\n\r\n" + strings.Repeat(" ", 500), false},
		{"Transfer-Encoding: chunked\r\n\r\n5dc\r\n" + strings.Repeat(" ", 1500) + "\r\n", false},
		{fmt.Sprintf("Content-Length: %d\r\n\r\n", size), true},
		{fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n", size), true},
	} {
		c := s.dial(t, test.begin)
		for range size / len(piece) {
			if test.sends {
				_, err := c.Write(piece)
				require.NoError(t, err)
			}
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, 413, r.StatusCode)
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Contains(t, string(text), "--max-body")
	}
}

// Ensure that if a client closes its side of the connection after the request, it gets an error. It does not get an
// empty answer with status 200.
func TestAClientThatClosesItsSideGetsAnError(t *testing.T) {
	s := start(t, func(_ *openai.Config, c *engine.Config) { c.MaxModelLen, c.KVCacheBytes = 4096, 64<<20 })
	for _, more := range []string{"", `, "use_beam_search": true`} {
		body := `{"model": "demo", "prompt": "ab ab", "max_tokens": 4000, "ignore_eos": true` + more + `}`
		c := s.dial(t, fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
		require.NoError(t, c.CloseWrite())
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		require.NoError(t, err)
		require.Equal(t, 499, r.StatusCode)
		require.NoError(t, r.Body.Close())
	}
	settle(t, s)
}

// The blocks of a client that goes are free again.
func TestAClientThatGoesFreesItsBlocks(t *testing.T) {
	s := start(t, nil)
	r := s.open(t, chats, demo+
		`"messages": [{"role": "user", "content": "x"}], "max_tokens": 900, "ignore_eos": true, "stream": true}`)
	require.True(t, bufio.NewScanner(r.Body).Scan())
	require.NoError(t, r.Body.Close())
	settle(t, s)
}
