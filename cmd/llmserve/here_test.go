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

// A here is a server that runs in this process, on the emulated GPU.
type here struct {
	address string
	stop    func()
	ended   chan error
}

func serveHere(t *testing.T, model string, args ...string) *here {
	t.Helper()
	c := command()
	from, to := io.Pipe()
	c.SetOut(to)
	c.SetArgs(append([]string{model, "--port", "0", "--device", "cuda"}, args...))
	ctx, cancel := context.WithCancel(t.Context())
	s := &here{stop: cancel, ended: make(chan error, 1)}
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
		s.address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(line)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return s
}

func (s *here) post(t *testing.T, path, body string) (status int, answer string) {
	t.Helper()
	return answerOf(t, func() (*http.Response, error) {
		return http.Post(s.address+path, "application/json", strings.NewReader(body))
	})
}

func (s *here) get(t *testing.T, path string) (status int, answer string) {
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

// choices returns what a request is answered with, and how many tokens of its prompt were cached.
func (s *here) choices(t *testing.T, body string) (choices string, cached int) {
	t.Helper()
	status, answer := s.post(t, "/v1/completions", body)
	require.Equal(t, http.StatusOK, status, answer)
	var a struct {
		Choices json.RawMessage
		Usage   struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(answer), &a))
	return string(a.Choices), a.Usage.Details.Cached
}

// end stops the server, which must end without an error.
func (s *here) end(t *testing.T) {
	t.Helper()
	s.stop()
	require.NoError(t, <-s.ended)
}
