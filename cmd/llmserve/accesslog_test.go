package main

import (
	"bytes"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine/openai"
)

func record(status int, reason string) openai.Record {
	return openai.Record{Begin: time.Date(2026, 2, 3, 4, 5, 6, 7e6, time.UTC), Elapsed: 1234 * time.Millisecond,
		Client: "10.0.0.1:4711", Method: "POST", Path: "/v1/completions", Status: status, PromptTokens: 12, GenerationTokens: 34,
		Reason: reason}
}

func TestALineOfTheLogHasWhatAnOperatorNeeds(t *testing.T) {
	r := record(200, "")
	const begin = "2026-02-03T04:05:06.007Z 10.0.0.1:4711 POST "
	require.Equal(t, begin+"/v1/completions 200 in=12 out=34 1.234s", accessLine(&r))
	r = record(404, "There is no \x1b[2J\nhere.")
	r.Path = "/a\nb"
	require.Equal(t, begin+`/a\x0ab 404 in=12 out=34 1.234s There is no \x1b[2J\x0ahere.`, accessLine(&r))
	r = record(400, strings.Repeat("é", 1<<20))
	r.Method, r.Path = strings.Repeat("M", 1<<10), "/"+strings.Repeat("p", 1<<10)
	require.Less(t, len(accessLine(&r)), 450)
}

// Ensure that a warning is written the first time it comes, and that clients cannot fill the disk with warnings.
func TestAWarningIsWrittenOnce(t *testing.T) {
	var out bytes.Buffer
	l := newAccessLog(&out, false)
	r := record(200, "")
	r.Warning = "Tools are left out: web_search."
	l.note(r)
	l.note(r)
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), " 200 in=12 out=34 1.234s warning: Tools are left out: web_search.\n")
	for i := range 1000 {
		r.Warning = strings.Repeat("x", i+1)
		l.note(r)
	}
	require.Equal(t, maxWarned, strings.Count(out.String(), "\n"))
}

// Ensure that a few errors are logged at once, then one per second. The log must say how many were omitted.
func TestTheLogOfErrorsIsBounded(t *testing.T) {
	for _, all := range []bool{false, true} {
		var out bytes.Buffer
		l := newAccessLog(&out, all)
		lines := func() (n int) {
			n = strings.Count(out.String(), "\n")
			out.Reset()
			return n
		}
		for range 1000 {
			l.note(record(200, ""))
		}
		want := 0
		if all {
			want = 1000
		}
		require.Equal(t, want, lines())
		for range 1000 {
			l.note(record(429, "The server's queue is full; try again later."))
		}
		require.Equal(t, errorBurst, lines())
		later := record(200, "The model failed.") // in the middle of a stream
		later.Begin = later.Begin.Add(time.Second)
		l.note(later)
		l.note(later)
		require.Equal(t, 1, lines())
		l.flush()
		require.Contains(t, out.String(), " 981 more requests got errors; their lines were left out\n")
		lines()
		l.flush()
		require.Empty(t, out.String())
	}
}

// Ensure that errors of /health do not count against the limit on lines about errors. The log may write errorBurst
// such lines at once. While a server shuts down, it answers probes of /health with errors. These errors must not take
// the lines of other requests.
func TestAProbeThatGetsAnErrorIsNoErrorOfARequest(t *testing.T) {
	probe := record(503, "The server ends: no GPU")
	probe.Method, probe.Path = "GET", "/health"
	for _, all := range []bool{false, true} {
		var out bytes.Buffer
		l := newAccessLog(&out, all)
		for range 2 * errorBurst {
			l.note(probe)
		}
		l.note(record(503, "The server ends: no GPU"))
		l.flush()
		require.Contains(t, out.String(), "POST /v1/completions 503 ")
		require.NotContains(t, out.String(), "left out")
		require.Equal(t, all, strings.Contains(out.String(), "GET /health 503 "))
	}
}

// The server writes the lines to standard error.
func TestRequestsAreLogged(t *testing.T) {
	for _, test := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"errors always", nil, `\A\S+Z 127\.0\.0\.1:\d+ GET /nothing 404 in=0 out=0 \d+\.\d{3}s There is no GET /nothing here\. .*\n\z`},
		{"all requests", []string{"--log-requests"}, `\A\S+Z 127\.0\.0\.1:\d+ POST /v1/completions 200 in=23 out=6 .*s\n\S+Z .* 404 .*\n\z`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var log bytes.Buffer
			s := serveDemoTo(t, &log, test.flags...)
			require.Contains(t, text(t, s.post(t, "/completions", question)), `"text":" three"`)
			r, err := http.Get(strings.TrimSuffix(s.url, "/v1") + "/nothing")
			require.NoError(t, err)
			require.Contains(t, text(t, r), "There is no")
			require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, s.cmd.Wait())
			require.Regexp(t, test.want, log.String())
		})
	}
}
