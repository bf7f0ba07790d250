package openai_test

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/pool"
	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

const comment = ": keep-alive\n"

// A gate stops the engine after each step until it is opened.
type gate chan struct{}

func (g gate) SetGroups([]kvcache.Group)             {}
func (g gate) Publish(time.Time, *pool.Events) error { <-g; return nil }

// held starts a server whose engine stops after its first step, of at most 16 tokens, until release is
// called. When a stream has had no event for a millisecond, the server sends a comment to it.
func held(t *testing.T, change func(*openai.Config)) (s *served, release func()) {
	g := make(gate)
	release = sync.OnceFunc(func() { close(g) })
	s = start(t, func(o *openai.Config, c *engine.Config) {
		o.KeepAlive, c.KVEvents, c.MaxNumBatchedTokens = time.Millisecond, g, 16
		if change != nil {
			change(o)
		}
	})
	t.Cleanup(release)
	return s, release
}

// Ensure that a stream sends its headers immediately, and comments while no token is ready. Comments
// are no part of the answer.
func TestAStreamThatWaitsGetsComments(t *testing.T) {
	long := strings.Repeat("x", 40)
	for path, body := range map[string]string{
		texts: demo + `"prompt": "` + long + `", "max_tokens": 2, "stream": true}`,
		chats: demo + `"messages": [{"role": "user", "content": "` + long + `"}], "max_tokens": 2, "stream": true}`,
	} {
		s, release := held(t, nil)
		a := s.open(t, path, body)
		defer a.Body.Close()
		require.Equal(t, 200, a.StatusCode)
		lines := bufio.NewReader(a.Body)
		for range 2 {
			line, err := lines.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, comment, line)
			line, err = lines.ReadString('\n')
			require.NoError(t, err)
			require.Equal(t, "\n", line)
		}
		release()
		rest, err := io.ReadAll(lines)
		require.NoError(t, err)
		requireEvents(t, &reply{Header: a.Header, Text: strings.ReplaceAll(string(rest), comment+"\n", "")})
	}
}

// Ensure that each event is one line even if a client splits lines at Unicode's line breaks, as Python's splitlines
// does.
func TestAnEventIsOneLineForAllClients(t *testing.T) {
	const breaks = "a\u0085b\u2028c\u2029d\ve\ff\x1cg\x1dh\x1ei\rj"
	s := start(t, nil)
	content, err := json.Marshal(breaks)
	require.NoError(t, err)
	a := s.ask(t, chats, demo+`"messages": [{"role": "user", "content": `+string(content)+`}], "temperature": 0, "stream": true}`)
	require.Equal(t, 200, a.Status, a.Text)
	require.NotRegexp(t, "[\u0085\u2028\u2029\v\f\x1c\x1d\x1e\r]", a.Text)
	var answer string
	for _, c := range a.Choices {
		answer += c.Delta.Content
	}
	require.Equal(t, breaks, answer)
}
