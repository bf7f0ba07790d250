//go:build long

package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/browsertest"
)

func init() { runTests = browsertest.Main }

// keepAsking starts n users. Each sends the same request again and again until the test calls stop.
func (s *server) keepAsking(n int, body string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var users sync.WaitGroup
	for range n {
		users.Go(func() {
			for ctx.Err() == nil {
				r, _ := http.NewRequestWithContext(ctx, "POST", s.url+"/completions", strings.NewReader(body))
				if answer, err := http.DefaultClient.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
				}
			}
		})
	}
	return func() { cancel(); users.Wait() }
}

func waitFor(t *testing.T, tab context.Context, script string) {
	t.Helper()
	require.Eventually(t, func() bool { return browsertest.Evaluate[bool](t, tab, script) }, patience,
		50*time.Millisecond, script)
}

// Ensure that the page shows which requests share blocks. If the user chooses a step, the page must stay at this step.
// When the requests have ended, the page must no longer show their block tables.
func TestTheMemoryPageShowsWhatRequestsShare(t *testing.T) {
	in := browsertest.Start(t)
	s := serveDemo(t)
	prompt := strings.Repeat("Sixteen users ask about one document. ", 3) // 114 bytes: 7 whole blocks
	tab := browsertest.OpenLive(t, in, strings.TrimSuffix(s.url, "/v1")+"/memory",
		browsertest.Look{Width: 1280, Still: true})
	waitFor(t, tab, `document.getElementById('said').textContent.includes('The memory as it is now.')`)
	stop := s.keepAsking(16, fmt.Sprintf(
		`{"model": "demo", "prompt": %q, "max_tokens": 1500, "temperature": 0, "ignore_eos": true, "stream": true}`, prompt))
	defer stop()
	const shared = `document.querySelectorAll('#gpu .cell[data-count="16"]')`
	waitFor(t, tab, shared+`.length >= 7 && document.querySelectorAll('#tables .table').length == 16 && `+shared+
		`[0].dataset.owners.includes('1')`)
	browsertest.Shoot(t, tab, "memory")
	require.Equal(t, "request", browsertest.Evaluate[string](t, tab, `document.getElementById('order').value`))
	groups := browsertest.Evaluate[[]string](t, tab,
		`[...document.querySelectorAll('#gpu > .group')].map(g => g.dataset.group)`)
	require.Contains(t, groups, "shared")
	require.Equal(t, "free", groups[len(groups)-1], "%v", groups)
	require.Greater(t, browsertest.Evaluate[int](t, tab, `document.querySelectorAll('#gpu .cell').length`), 1000)

	require.NoError(t, chromedp.Do(tab, chromedp.KeyEvent(kb.ArrowLeft)))
	at := browsertest.Evaluate[int](t, tab, `Number(document.documentElement.dataset.step)`)
	last := browsertest.Evaluate[int](t, tab, `Number(document.getElementById('slider').max)`)
	waitFor(t, tab, fmt.Sprintf(`Number(document.getElementById('slider').max) > %d`, last))
	require.Equal(t, at, browsertest.Evaluate[int](t, tab, `Number(document.documentElement.dataset.step)`),
		"it stays where the user is")

	require.NoError(t, chromedp.Do(tab, chromedp.KeyEvent(kb.End)))
	stop()
	waitFor(t, tab, `document.querySelectorAll('#tables .table').length == 0`)
	require.Contains(t, browsertest.Evaluate[string](t, tab, `document.getElementById('said').textContent`), "leave")
	waitFor(t, tab, `document.getElementById('time').textContent.includes('live')`)
}

func TestTheMemoryPageAsksForTheKey(t *testing.T) {
	s := serveDemo(t, "--api-key", "secret")
	page := strings.TrimSuffix(s.url, "/v1") + "/memory"
	tests := []struct {
		name, authorization string
		want                int
	}{
		{"nothing", "", 401},
		{"a wrong password", "Basic " + base64.StdEncoding.EncodeToString([]byte("me:guess")), 401},
		{"the key as the password", "Basic " + base64.StdEncoding.EncodeToString([]byte(":secret")), 200},
		{"the key as for the interface", "Bearer secret", 200},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, err := http.NewRequest("GET", page, nil)
			require.NoError(t, err)
			r.Header.Set("Authorization", test.authorization)
			answer, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			body := text(t, answer)
			require.Equal(t, test.want, answer.StatusCode)
			require.Equal(t, test.want == 401, strings.HasPrefix(answer.Header.Get("WWW-Authenticate"), "Basic "))
			require.Equal(t, test.want == 200, strings.Contains(body, "memory map"))
		})
	}
}
