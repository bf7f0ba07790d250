package openai_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

// allocated returns how many bytes this process allocates while f runs, in client and server together.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// repeating is a template that writes each message a thousand times.
const repeating = "{% for message in messages %}{% for i in range(1000) %}{{ message['content'] }}{% endfor %}{% endfor %}"

// Ensure that a text is refused before it is tokenized if it cannot fit into the context. A chat template is stopped
// when its output becomes too long.
func TestATextThatCannotFitCostsNoMoreThanItsBody(t *testing.T) {
	s := start(t, nil)
	repeats := start(t, func(c *openai.Config, _ *engine.Config) { c.Template = newTemplate(t, repeating) })
	long := strings.Repeat("hello you ", 400_000)
	for _, test := range []struct {
		name       string
		server     *served
		path, body string
		maxBytes   int // allocated
	}{
		{"a text", s, texts, demo + `"prompt": "` + long + `"}`, 12 * len(long)},
		{"texts", s, texts, demo + `"prompt": ["x", "` + long + `"]}`, 14 * len(long)},
		{"a chat", s, chats, demo + `"messages": [{"role": "user", "content": "` + long + `"}]}`, 16 * len(long)},
		{"to be counted", s, "/tokenize", demo + `"prompt": "` + long + `"}`, 12 * len(long)},
		{"a chat to be counted", s, "/tokenize", demo + `"messages": [{"role": "user", "content": "` + long + `"}]}`,
			16 * len(long)},
		{"a template that repeats", repeats, chats, demo + `"messages": [{"role": "user", "content": "` + long[:10_000] +
			`"}]}`, 2 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			var a *reply
			bytes := allocated(func() { a = test.server.ask(t, test.path, test.body) })
			require.Equal(t, 400, a.Status, "%.200s", a.Text)
			if test.path == "/tokenize" {
				require.Equal(t, "The text has more than 131072 tokens, which is the most that is counted.", a.Error.Message)
			} else {
				require.Contains(t, a.Error.Message, "resulted in at least 1024 tokens")
			}
			require.Less(t, bytes, test.maxBytes)
		})
	}
	tokens := fmt.Sprintf(`{"tokens": [1%s]}`, strings.Repeat(",1", 1<<17))
	a := s.ask(t, "/detokenize", tokens)
	require.Equal(t, 400, a.Status)
	require.Equal(t, "There are 131073 tokens; at most 131072 are possible.", a.Error.Message)
}

// Ensure that the server checks whether a request may run or wait before it tokenizes the text.
func TestLimitsAreCheckedBeforeATextIsTokenized(t *testing.T) {
	long := demo + `"prompt": "` + strings.Repeat("x", 2000) + `"`
	s := start(t, func(c *openai.Config, _ *engine.Config) {
		c.APIKeys, c.Limits = []string{"a", "b"}, openai.Limits{Requests: 1, Tokens: 100}
	})
	require.Equal(t, 200, s.ask(t, texts, text+`"n": 1}`, withKey("a")...).Status)
	for _, more := range []string{`}`, `, "use_beam_search": true}`} {
		require.Equal(t, 429, s.ask(t, texts, long+more, withKey("a")...).Status)
		require.Equal(t, 400, s.ask(t, texts, long+more, withKey("b")...).Status)
		n := s.ask(t, texts, long+`, "n": 1000`+more, withKey("b")...)
		require.Equal(t, "n", n.Error.Param, n.Text)
	}
	busy := start(t, func(_ *openai.Config, c *engine.Config) { c.MaxNumSeqs, c.MaxWaiting = 1, 1 })
	for range 2 {
		r := busy.open(t, texts, demo+`"prompt": "12345678", "max_tokens": 1000, "ignore_eos": true, "stream": true}`)
		defer r.Body.Close() // before its end, which cancels the request
		require.Equal(t, 200, r.StatusCode)
	}
	for _, more := range []string{`}`, `, "use_beam_search": true}`} {
		require.Equal(t, 429, busy.ask(t, texts, long+more).Status)
	}
}

// Ensure that the server counts the values of a body before it decodes the body, so that a body cannot take much more
// memory than its size. Client and server together may allocate at most 4 MiB plus 12 times the size.
func TestABodyCannotTakeManyTimesItsBytes(t *testing.T) {
	s := start(t, nil)
	many := func(one string) string { return "[" + strings.Repeat(one+",", 1<<20) + one + "]" }
	const message = `{"role": "user", "content": "x"}`
	for _, test := range []struct{ name, path, body, says string }{
		{"messages", chats, demo + `"messages": ` + many("{}") + "}", "The body has more than 65536 values"},
		{"variables", chats, demo + `"messages": [` + message + `], "chat_template_kwargs": {"x": ` + many("{}") + "}}",
			"The body has more than 65536 values"},
		{"calls", chats, demo + `"messages": [` + message + `, {"role": "assistant", "tool_calls": ` + many("{}") + "}]}",
			"The body has more than 65536 values"},
		{"tokens that end it", texts, text + `"stop_token_ids": ` + many("1") + "}", "The body has more than 65536 values"},
		{"stops", texts, text + `"stop": ` + many(`""`) + "}", "The body has more than 65536 values"},
		{"fields", texts, text + strings.Repeat(`"x": 1,`, 1<<20) + `"n": 1}`, "The body has more than 65536 values"},
		{"texts", texts, demo + `"prompt": ` + many(`""`) + "}", "The body has more than 131072 tokens"},
		{"lists of tokens", texts, demo + `"prompt": ` + many(`[1]`) + "}", "The body has more than 131072 tokens"},
		{"fewer texts", texts, demo + `"prompt": [""` + strings.Repeat(`,""`, 1<<17) + "]}", "There are more than 4096 prompts."},
		{"fewer lists of tokens", texts, demo + `"prompt": [[]` + strings.Repeat(`,[]`, 1<<17) + "]}",
			"There are more than 4096 prompts."},
		{"tokens", texts, demo + `"prompt": ` + many(`1`) + "}", "The body has more than 131072 tokens"},
		{"tokens to be read", "/detokenize", `{"tokens": ` + many(`1`) + "}", "The body has more than 131072 tokens"},
		{"nested lists", chats, demo + `"messages": [` + message + `], "chat_template_kwargs": {"x": ` + strings.Repeat("[", 1<<20) +
			strings.Repeat("]", 1<<20) + "}}", "The body has lists and objects that are nested 1048578 deep; at most 1000 levels are possible."},
		{"nested objects", texts, text + `"guided_json": ` + strings.Repeat(`{"a":`, 1000) + "1" + strings.Repeat("}", 1001), "nested 1001 deep"},
		{"nested arguments", chats, demo + `"messages": [` + message + `, {"role": "assistant", "tool_calls": [{"function": {"name": "f", ` +
			`"arguments": "{\"a\": ` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}"}}]}]}`, "nested more than 1000 deep"},
		{"a stop", texts, text + `"stop": "` + strings.Repeat("x", 1025) + `"}`, "A stop sequence has 1025 bytes; at most 1024"},
		{"a salt", texts, text + `"cache_salt": "` + strings.Repeat("x", 1025) + `"}`, "cache_salt has 1025 bytes; at most 1024"},
		{"a name", texts, strings.Replace(text, `"demo"`, `"`+strings.Repeat("\\u0001", 1<<20)+`"`, 1) + `"n": 1}`,
			`\x01..." does not exist; this server has "demo".`},
		{"a role", chats, demo + `"messages": [{"role": "` + strings.Repeat("x", 1<<20) + `", "content": "x"}]}`,
			`xxx..."; system, developer, user`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var a *reply
			bytes := allocated(func() { a = s.ask(t, test.path, test.body) })
			require.Contains(t, []int{400, 404}, a.Status)
			require.Contains(t, a.Error.Message, test.says)
			require.Less(t, len(a.Error.Message), 5000)
			require.Less(t, bytes, 12*len(test.body)+4<<20)
		})
	}
	for name, body := range map[string]string{ // what does fit
		"levels":   text + `"max_tokens": 1, "metadata": ` + strings.Repeat("[", 999) + strings.Repeat("]", 999) + `}`,
		"commas":   demo + `"max_tokens": 1, "prompt": "x", "user": "` + strings.Repeat(`,\",[`, 1<<17) + `"}`,
		"a stop":   text + `"stop": "` + strings.Repeat("x", 1024) + `"}`,
		"a salt":   text + `"cache_salt": "` + strings.Repeat("x", 1024) + `"}`,
		"no texts": demo + `"max_tokens": 1, "prompt": [ "x", "y" ]}`,
		"lists":    demo + `"max_tokens": 1, "prompt": [ [120], [121, 122] ]}`,
		"tokens":   demo + `"max_tokens": 1, "prompt": [ 120 ]}`,
	} {
		a := s.ask(t, texts, body)
		require.Equal(t, 200, a.Status, "%s: %s", name, a.Text)
	}
}
