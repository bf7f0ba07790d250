package openai_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/testkit/level"
)

// live returns how many bytes of the Go heap are in use.
func live() int {
	runtime.GC()
	runtime.GC() // and what finalizers have released
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// Ensure that requests with large bodies that wait for their answers do not keep the bodies.
func TestWaitingRequestsDoNotKeepTheirBodies(t *testing.T) {
	level.SkipNormal(t)
	const size = 1 << 20
	pad := strings.Repeat("x", size)
	schema := `{"type": "object", "description": "` + pad[:size/2] + `"}`
	for _, test := range []struct{ name, path, fields string }{
		{"variables", chats, `"chat_template_kwargs": {"a": "` + pad + `"}`},
		{"many variables", chats, `"chat_template_kwargs": {"a": [` + strings.Repeat(`"xxxxxxxxxxxx", `, 1<<15) + `1]}`},
		{"tools", chats, `"tools": [{"type": "function", "function": {"name": "f", "parameters": ` + schema + `}}]`},
		{"a form", chats, `"response_format": {"type": "json_object", "schema": ` + schema + `}`},
		{"no effect", chats, `"metadata": {"a": "` + pad + `"}`},
		{"a form of a completion", texts, `"guided_json": ` + schema},
		{"a regex", texts, `"guided_regex": "a|` + pad[:size/64] + `"`},
		{"a field of a response", respond, `"client_metadata": {"a": "` + pad + `"}`},
		{"the largest metadata", respond, `"metadata": {` + strings.Repeat(" ", size) + `"a": "x"}`},
		{"a form of a response", respond, `"client_metadata": {"a": "` + pad + `"}, "text": {"format": {"type": "json_object"}}`},
		{"a message", messages, `"metadata": {"a": "` + pad + `"}`},
		{"tools of a message", messages, `"tools": [{"name": "f", "input_schema": ` + schema + `}]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			device := &openai.Stuck{Released: make(chan struct{})}
			s := startAll(t, func(o *openai.Config, e *engine.Config) {
				device.Model, e.Device = e.Model, device
				useTools(t, o, "hermes")
			})
			t.Cleanup(func() { close(device.Released) })
			body := demo + `"stream": true, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, ` + test.fields + "}"
			switch test.path {
			case texts:
				body = demo + `"stream": true, "prompt": "hi", ` + test.fields + "}"
			case respond:
				body = demo + `"stream": true, "input": "hi", ` + test.fields + "}"
			}
			n := level.Pick(4, 60)
			before := live()
			for range n {
				r := s.open(t, test.path, body)
				t.Cleanup(func() { _ = r.Body.Close() })
				require.Equal(t, 200, r.StatusCode)
			}
			require.Less(t, live()-before, n*size/8, "%d requests of %d bytes wait", n, len(body))
		})
	}
}
