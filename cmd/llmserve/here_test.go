package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An inProcess is a server that runs in this process, on the emulated GPU.
type inProcess struct {
	address string
	said    string // up to the line with the address
	stop    func()
	ended   chan error
}

func serveHere(t *testing.T, model string, args ...string) *inProcess {
	t.Helper()
	c := command()
	from, to := io.Pipe()
	c.SetOut(to)
	c.SetArgs(append([]string{model, "--port", "0", "--device", "cuda"}, args...))
	ctx, cancel := context.WithCancel(t.Context())
	s := &inProcess{stop: cancel, ended: make(chan error, 1)}
	closed := make(chan struct{})
	go func() {
		s.ended <- c.ExecuteContext(ctx)
		_ = to.Close()
		close(closed)
	}()
	t.Cleanup(func() { // before the emulated GPU frees its memory
		cancel()
		<-closed
	})
	lines := bufio.NewReader(from)
	for s.address == "" {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		s.said += line
		s.address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(line)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return s
}

func (s *inProcess) post(t *testing.T, path, body string) (status int, answer string) {
	t.Helper()
	return answerOf(t, func() (*http.Response, error) {
		return http.Post(s.address+path, "application/json", strings.NewReader(body))
	})
}

func (s *inProcess) get(t *testing.T, path string) (status int, answer string) {
	t.Helper()
	return answerOf(t, func() (*http.Response, error) { return http.Get(s.address + path) })
}

func answerOf(t *testing.T, send func() (*http.Response, error)) (status int, answer string) {
	t.Helper()
	r, err := send()
	require.NoError(t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(body)
}

// choices returns the choices of the answer to a request, and the number of tokens of its prompt that were
// cached.
func (s *inProcess) choices(t *testing.T, body string) (choices string, cached int) {
	t.Helper()
	status, answer := s.post(t, "/v1/completions", body)
	require.Equal(t, http.StatusOK, status, answer)
	var a completion
	require.NoError(t, json.Unmarshal([]byte(answer), &a))
	return string(a.Choices), a.Usage.Details.Cached
}

// end stops the server, which must end without an error.
func (s *inProcess) end(t *testing.T) {
	t.Helper()
	s.stop()
	require.NoError(t, <-s.ended)
}
