package openai_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
	"llmmemory/internal/engine/openai"
)

func TestAWebPageFromElsewhereCannotUseAServerOfThisMachine(t *testing.T) {
	open := start(t, func(c *openai.Config, _ *engine.Config) { c.Local = true })
	public := start(t, nil)
	keyed := start(t, func(c *openai.Config, _ *engine.Config) { c.Local, c.APIKeys = true, []string{"secret"} })
	for _, test := range []struct {
		name         string
		server       *served
		host         string
		header, mean string
		want         int
	}{
		{"a program", open, "", "", "", 200},
		{"a form of another site", open, "", "Sec-Fetch-Site", "cross-site", 403},
		{"another port", open, "", "Sec-Fetch-Site", "same-site", 403},
		{"an older browser", open, "", "Origin", "http://example.com", 403},
		{"a page without an origin", open, "", "Origin", "null", 403},
		{"its page", open, "", "Sec-Fetch-Site", "same-origin", 200},
		{"a name made an address of this machine", open, "example.com:8000", "Sec-Fetch-Site", "same-origin", 403},
		{"this machine by name", open, "localhost:8000", "", "", 200},
		{"this machine by name, in capitals", open, "LOCALHOST", "", "", 200},
		{"a subdomain", open, "llm.localhost:8000", "", "", 200},
		{"IPv6", open, "[::1]:8000", "", "", 200},
		{"IPv6, no port", open, "[::1]", "", "", 200},
		{"not quite this machine", open, "localhost.example.com", "", "", 403},
		{"a server for others has any name", public, "example.com", "", "", 200},
		{"who has the key may use any name", keyed, "example.com", "Authorization", "Bearer secret", 200},
		{"a key does not help another site", keyed, "", "Origin", "http://example.com", 403},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := http.NewRequest("POST", test.server.url+"/v1/completions",
				strings.NewReader(`{"model": "demo", "prompt": "x", "max_tokens": 1}`))
			require.NoError(t, err)
			r.Host = test.host
			if test.header != "" {
				r.Header.Set(test.header, test.mean)
			}
			got, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, got.Body.Close())
			require.Equal(t, test.want, got.StatusCode)
		})
	}
	r, err := http.NewRequest("GET", open.url+"/metrics", nil)
	require.NoError(t, err)
	r.Host = "example.com"
	got, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.NoError(t, got.Body.Close())
	require.Equal(t, 403, got.StatusCode)
}
