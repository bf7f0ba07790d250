package openai_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/engine"
	"llmmemory/internal/engine/openai"
	"llmmemory/internal/model/chat"
)

const (
	textOf = `{"model": "demo", "prompt": "x", "max_tokens": 1, `
	talkOf = `{"model": "demo", "messages": [{"role": "user", "content": "x"}], `
)

// Fields of llama.cpp, ollama and others that would change the answer are refused, with what to use instead.
func TestFieldsOfOtherServersAreRefusedByName(t *testing.T) {
	s := start(t, nil)
	for _, test := range []struct{ field, instead string }{
		{`"grammar": "root ::= \"a\""`, "ask for JSON in the prompt"},
		{`"json_schema": {"type": "object"}`, "ask for JSON in the prompt"},
		{`"format": "json"`, "ask for JSON in the prompt"},
		{`"regex": "a+"`, "ask for JSON in the prompt"},
		{`"ebnf": "root ::= \"a\""`, "ask for JSON in the prompt"},
		{`"repeat_penalty": 1.1`, "use repetition_penalty"},
		{`"repeat_last_n": 64`, "use repetition_penalty"},
		{`"n_predict": 5`, "use max_tokens"},
		{`"num_predict": 5`, "use max_tokens"},
		{`"max_new_tokens": 5`, "use max_tokens"},
		{`"max_output_tokens": 5`, "use max_tokens"},
		{`"n_probs": 5`, "use logprobs"},
		{`"mirostat": 2`, "use top_p or min_p"},
		{`"mirostat_tau": 4`, "use top_p or min_p"},
		{`"typical_p": 0.9`, "use top_p or min_p"},
		{`"tfs_z": 0.9`, "use top_p or min_p"},
		{`"top_n_sigma": 1`, "use top_p or min_p"},
		{`"dynatemp_range": 0.5`, "use temperature"},
		{`"dry_multiplier": 0.8`, "use repetition_penalty"},
		{`"dry_base": 1.5`, "use repetition_penalty"},
		{`"dry_sequence_breakers": ["\n"]`, "use repetition_penalty"},
		{`"no_repeat_ngram_size": 3`, "use repetition_penalty"},
		{`"xtc_probability": 0.5`, "use top_p or min_p"},
		{`"xtc_threshold": 0.2`, "use top_p or min_p"},
		{`"samplers": ["top_k"]`, "use top_k, top_p, min_p and temperature"},
		{`"options": {"temperature": 0}`, "use its settings as fields of the request"},
		{`"system": "Be brief."`, "use a message with the role system"},
		{`"template": "{{ .Prompt }}"`, "use /v1/completions"},
		{`"raw": true`, "use /v1/completions"},
		{`"lora": [{"id": 0, "scale": 1}]`, "merge the adapter into the model"},
		{`"reasoning_effort": "high"`, "use chat_template_kwargs"},
		{`"enable_thinking": false`, "use chat_template_kwargs"},
		{`"think": false`, "use chat_template_kwargs"},
		{`"reasoning_effort": "none"`, "use chat_template_kwargs"},
		{`"suffix": "none"`, "not supported"},
		{`"system": "auto"`, "use a message"},
		{`"reasoning_effort": "low"`, "use chat_template_kwargs"},
		{`"include_reasoning": false`, "use chat_template_kwargs"},
		{`"prompt_logprobs": 1`, "use /v1/completions with echo and logprobs"},
		{`"bad_words": ["a"]`, "use logit_bias"},
		{`"allowed_token_ids": [5]`, "use logit_bias"},
		{`"chat_template": "x"`, "--chat-template"},
		{`"do_sample": false`, "use temperature"},
		{`"num_beams": 4`, "use use_beam_search"},
		{`"stop_sequences": ["x"]`, "use stop"},
		{`"verbosity": "low"`, ""},
		{`"function_call": {"name": "f"}`, ""},
	} {
		name, _, _ := strings.Cut(strings.TrimPrefix(test.field, `"`), `"`)
		for path, body := range map[string]string{"/v1/completions": textOf, "/v1/chat/completions": talkOf} {
			t.Run(name+path, func(t *testing.T) {
				r, e := s.send(t, "POST", path, "application/json", body+test.field+"}")
				require.Equal(t, 400, r.StatusCode)
				require.Equal(t, name, e["param"])
				require.Contains(t, e["message"], name+" is not supported by this server")
				require.Contains(t, e["message"], test.instead)
			})
		}
	}
	for _, test := range []struct{ name, path, body, param, want string }{
		{"a chat's limit of a text", "/v1/completions", textOf + `"max_completion_tokens": 5}`, "max_completion_tokens",
			"use max_tokens"},
		{"a chat's log probabilities of a text", "/v1/completions", textOf + `"top_logprobs": 5}`, "top_logprobs",
			"use logprobs"},
		{"settings of the template of a text", "/v1/completions", textOf + `"chat_template_kwargs": {"a": 1}}`,
			"chat_template_kwargs", "use /v1/chat/completions"},
		{"mirostat_tau beside null", "/v1/completions", textOf + `"mirostat": null, "mirostat_tau": 4}`,
			"mirostat_tau", "use top_p or min_p"},
		{"a text's best_of of a chat", "/v1/chat/completions", talkOf + `"best_of": 2}`, "best_of", "use n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, e := s.send(t, "POST", test.path, "application/json", test.body)
			require.Equal(t, 400, r.StatusCode)
			require.Equal(t, test.param, e["param"])
			require.Contains(t, e["message"], test.want)
		})
	}
}

func TestFieldsOfOtherServersThatChangeNothingAreTaken(t *testing.T) {
	s := start(t, nil)
	for _, fields := range []string{
		`"repeat_penalty": 1.0, "repeat_last_n": 64, "n_predict": null, "n_probs": 0`,
		`"mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "typical_p": 1, "tfs_z": 1.0, "top_n_sigma": -1`,
		`"dry_multiplier": 0.0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1, "dry_sequence_breakers": ["\n"]`,
		`"xtc_probability": 0, "xtc_threshold": 0.1, "dynatemp_range": 0, "dynatemp_exponent": 1`,
		`"samplers": [], "options": {}, "lora": [], "grammar": "", "format": "", "json_schema": null, "reasoning_effort": null, "include_reasoning": true`,
		`"do_sample": true, "num_beams": 1, "no_repeat_ngram_size": 0, "raw": false, "priority": 0.0`,
		`"cache_prompt": true, "id_slot": -1, "timings_per_token": true, "keep_alive": "5m", "store": false, "metadata": {"a": "b"}, "parallel_tool_calls": true`,
		`"tool_choice": "auto", "function_call": "none"`,
	} {
		for path, body := range map[string]string{"/v1/completions": textOf, "/v1/chat/completions": talkOf +
			`"max_tokens": 1, `} {
			r, e := s.send(t, "POST", path, "application/json", body+fields+"}")
			require.Equal(t, 200, r.StatusCode, "%s: %v", fields, e)
		}
	}
}

func TestAWholeNumberMayBeWrittenAsAFraction(t *testing.T) {
	s := start(t, nil)
	for _, test := range []struct {
		number string
		status int
	}{{"5.0", 200}, {"0.5e1", 200}, {"5E+0", 200}, {"5.5", 400}, {"1e300", 400}, {"1e16", 400}, {`"5.0"`, 400}} {
		t.Run(test.number, func(t *testing.T) {
			status, a := s.ask(t, `{"model": "demo", "prompt": "12345678 1234", "temperature": 0, "ignore_eos": true, "max_tokens": `+test.number+`}`)
			require.Equal(t, test.status, status, a.Error.Message)
			if status == 200 {
				require.Equal(t, 5, a.Usage.Completion)
			} else {
				require.Equal(t, "max_tokens", a.Error.Param)
			}
		})
	}
	status, a := s.ask(t, textOf+
		`"n": 2.0, "best_of": 3.0, "top_k": 5.0, "seed": 7.0, "min_tokens": 1.0, "logprobs": 2.0}`)
	require.Equal(t, 200, status, a.Error.Message)
	require.Len(t, a.Choices, 2)
	r, e := s.send(t, "POST", "/v1/chat/completions", "application/json", talkOf+
		`"max_completion_tokens": 1.0, "logprobs": true, "top_logprobs": 2.0}`)
	require.Equal(t, 200, r.StatusCode, e)
}

func TestBeamSearchRefusesFieldsThatItDoesNotRead(t *testing.T) {
	s := start(t, nil)
	for _, test := range []struct{ field, value string }{
		{"min_tokens", "1"}, {"presence_penalty", "1"}, {"frequency_penalty", "1"}, {"repetition_penalty", "1.5"},
		{"logit_bias", `{"65": 5}`},
	} {
		status, a := s.ask(t, fmt.Sprintf(`%s"use_beam_search": true, %q: %s}`, textOf, test.field, test.value))
		require.Equal(t, 400, status, test.field)
		require.Equal(t, test.field, a.Error.Param)
	}
	status, a := s.ask(t, textOf+
		`"use_beam_search": true, "min_tokens": 0, "presence_penalty": 0, "repetition_penalty": 1, "logit_bias": {}}`)
	require.Equal(t, 200, status, a.Error.Message)
}

// thinking is how Qwen3's template reads enable_thinking, with a variable of each other type.
const thinking = `{{ messages[0].content }}{% if enable_thinking is defined and enable_thinking is false %}<no>{% endif %}{% if count == 9 %}10{% endif %}{{ name }}`

func TestSettingsReachTheChatTemplate(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) {
		var err error
		c.Template, err = chat.New(thinking, map[string]string{"bos_token": "b"})
		require.NoError(t, err)
	})
	for _, test := range []struct{ name, settings, prompt string }{
		{"none", `{}`, "x"},
		{"null", `null`, "x"},
		{"a truth value", `{"enable_thinking": false}`, "x<no>"},
		{"the other", `{"enable_thinking": true}`, "x"},
		{"a number and a text", `{"count": 9, "name": "abc"}`, "x10abc"},
		{"an object, in its order", `{"name": {"b": 1, "a": [2.0, null]}}`, "x{'b': 1, 'a': [2.0, None]}"},
		{"one that the template does not read", `{"other": [1, {"a": null}]}`, "x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := http.Post(s.url+"/v1/chat/completions", "application/json",
				strings.NewReader(talkOf+`"max_tokens": 1, "chat_template_kwargs": `+test.settings+`}`))
			require.NoError(t, err)
			defer r.Body.Close()
			var a answered
			require.NoError(t, json.NewDecoder(r.Body).Decode(&a))
			require.Equal(t, 200, r.StatusCode, a.Error.Message)
			require.Equal(t, len(test.prompt), a.Usage.Prompt)
		})
	}
	for _, test := range []struct{ name, settings, want string }{
		{"the messages", `{"messages": []}`, "messages"},
		{"where the answer begins", `{"add_generation_prompt": false}`, "add_generation_prompt"},
		{"a special token", `{"bos_token": "x"}`, `"bos_token" is set by the server; leave it out`},
		{"a function", `{"raise_exception": 1}`, "raise_exception"},
		{"no object", `[1]`, "an object is expected"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, e := s.send(t, "POST", "/v1/chat/completions", "application/json", talkOf+`"chat_template_kwargs": `+
				test.settings+`}`)
			require.Equal(t, 400, r.StatusCode)
			require.Equal(t, "chat_template_kwargs", e["param"], e)
			require.Contains(t, e["message"], test.want)
		})
	}
}

// A template that reads reasoning_effort gets it from the field, as in vLLM, also beside chat_template_kwargs.
func TestReasoningEffortReachesATemplateThatReadsIt(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) {
		var err error
		c.Template, err = chat.New("{{ reasoning_effort }}", nil)
		require.NoError(t, err)
	})
	for _, test := range []struct {
		fields string
		prompt int // tokens
	}{
		{`"reasoning_effort": "low"`, 3}, {`"reasoning_effort": "medium"`, 6}, {`"reasoning_effort": "high"`, 4},
		{`"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "medium"}`, 3},
		{`"reasoning_effort": null, "chat_template_kwargs": {"reasoning_effort": "medium"}`, 6},
	} {
		r, err := http.Post(s.url+"/v1/chat/completions", "application/json",
			strings.NewReader(talkOf+`"max_tokens": 1, `+test.fields+`}`))
		require.NoError(t, err)
		defer r.Body.Close()
		var a answered
		require.NoError(t, json.NewDecoder(r.Body).Decode(&a))
		require.Equal(t, 200, r.StatusCode, a.Error.Message)
		require.Equal(t, test.prompt, a.Usage.Prompt, test.fields)
	}
	for path, body := range map[string]string{"/v1/completions": textOf + `"reasoning_effort": "low"}`,
		"/v1/chat/completions": talkOf + `"reasoning_effort": "none"}`} {
		r, e := s.send(t, "POST", path, "application/json", body)
		require.Equal(t, 400, r.StatusCode)
		require.Equal(t, "reasoning_effort", e["param"])
	}
}

// vLLM joins the parts of a message by line breaks.
func TestPartsOfAMessageAreLines(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) {
		var err error
		c.Template, err = chat.New("{{ messages[0].content }}{{ tools is none and documents is none }}", nil)
		require.NoError(t, err)
	})
	r, err := http.Post(s.url+"/tokenize", "application/json", strings.NewReader(
		`{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}`))
	require.NoError(t, err)
	defer r.Body.Close()
	var a struct{ Tokens []int }
	require.NoError(t, json.NewDecoder(r.Body).Decode(&a))
	var text []byte // tokens are bytes
	for _, id := range a.Tokens {
		text = append(text, byte(id))
	}
	require.Equal(t, "a\nbTrue", string(text))
}

// Messages of a history with tools reach the template as vLLM passes them: arguments of calls as values in their order,
// those that are no JSON as an empty object, and reasoning under both names.
func TestAHistoryWithToolsIsRendered(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) {
		var err error
		c.Template, err = chat.New("{% for m in messages %}[{{ m.role }}|{{ m.name }}|{{ m.content }}|{{ m.reasoning }}|"+
			"{{ m.reasoning_content }}|{{ m.tool_call_id }}{% for c in m.tool_calls %}|{{ c.id }} {{ c.function.name }} "+
			"{{ c.function.arguments | tojson }} {{ c.function | tojson }}{% endfor %}{{ m.tool_calls is defined }}]{% endfor %}", nil)
		require.NoError(t, err)
	})
	render := func(messages string) string {
		r, err := http.Post(s.url+"/tokenize", "application/json", strings.NewReader(`{"messages": [`+messages+`]}`))
		require.NoError(t, err)
		defer r.Body.Close()
		var a struct{ Tokens []int }
		require.NoError(t, json.NewDecoder(r.Body).Decode(&a))
		var text []byte // tokens are bytes
		for _, id := range a.Tokens {
			text = append(text, byte(id))
		}
		return string(text)
	}
	call := func(arguments string) string {
		return `{"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", ` +
			`"arguments": ` + arguments + `}}]}`
	}
	for _, test := range []struct{ messages, want string }{
		{`{"role": "user", "name": "Ann", "content": "x"}`, "[user|Ann|x|||False]"},
		{call(`"{\"b\": 1, \"a\": [2.5]}"`), `[assistant||||||c1 f {"b": 1, "a": [2.5]} {"name": "f", "arguments": {"b": 1, "a": [2.5]}}True]`},
		{call(`{"b": 1}`), `[assistant||||||c1 f {"b": 1} {"name": "f", "arguments": {"b": 1}}True]`},
		{call(`""`), `[assistant||||||c1 f {} {"name": "f", "arguments": {}}True]`},
		{call(`"{} {}"`), `[assistant||||||c1 f {} {"name": "f", "arguments": {}}True]`},
		{call(`null`), `[assistant||||||c1 f {} {"name": "f", "arguments": {}}True]`},
		{`{"role": "tool", "tool_call_id": "c1", "content": "7"}`, "[tool||7|||c1False]"},
		{`{"role": "assistant", "content": "x", "tool_calls": [], "tool_call_id": "c1"}`, "[assistant||x|||False]"},
		{`{"role": "assistant", "content": "x", "tool_calls": null, "reasoning": "why"}`, "[assistant||x|why|why|False]"},
		{`{"role": "assistant", "content": "x", "reasoning_content": "why"}`, "[assistant||x|why|why|False]"},
		{`{"role": "user", "content": "x", "reasoning_content": "why", "tool_calls": [{"function": {"name": "f"}}]}`, "[user||x|||False]"},
	} {
		require.Equal(t, test.want, render(test.messages), test.messages)
	}
}

func TestUnknownRolesAreRefused(t *testing.T) {
	s := start(t, nil)
	for _, role := range []string{"system", "developer", "user", "assistant", "tool"} {
		r, e := s.send(t, "POST", "/v1/chat/completions", "application/json",
			fmt.Sprintf(`{"model": "demo", "max_tokens": 1, "messages": [{"role": %q, "content": "x"}]}`, role))
		require.Equal(t, 200, r.StatusCode, "%s: %v", role, e)
	}
	for _, role := range []string{"User", "human", "model", "function", "user\n"} {
		r, e := s.send(t, "POST", "/v1/chat/completions", "application/json",
			fmt.Sprintf(`{"model": "demo", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}, {"role": %q, "content": "x"}]}`, role))
		require.Equal(t, 400, r.StatusCode, role)
		require.Equal(t, "messages", e["param"])
		require.Equal(t, fmt.Sprintf("Message 1 has the role %q; system, developer, user, assistant and tool are known.",
			role), e["message"])
	}
}

// A client that sends its whole body before it reads gets the 413, and no broken connection.
func TestABodyThatIsTooLargeIsRefusedToAClientThatStillSends(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.MaxBody = 1000 })
	const size = 64 << 20                       // more than the sockets' buffers hold
	piece := []byte(strings.Repeat(" ", 1<<20)) // JSON may begin with it
	for _, test := range []struct{ name, header string }{
		{"a length that is known", fmt.Sprintf("Content-Length: %d\r\n\r\n", size)},
		{"chunks", "Transfer-Encoding: chunked\r\n\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			require.NoError(t, err)
			defer c.Close()
			_, err = fmt.Fprintf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%s", test.header)
			require.NoError(t, err)
			chunked := strings.HasPrefix(test.header, "Transfer")
			for range size / len(piece) {
				if chunked {
					_, err = fmt.Fprintf(c, "%x\r\n%s\r\n", len(piece), piece)
				} else {
					_, err = c.Write(piece)
				}
				require.NoError(t, err)
			}
			if chunked {
				_, err = io.WriteString(c, "0\r\n\r\n")
				require.NoError(t, err)
			}
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			defer r.Body.Close()
			require.Equal(t, 413, r.StatusCode)
			text, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Contains(t, string(text), "--max-body")
		})
	}
}

// A client that waits for the answer before it sends the rest of its body gets it.
func TestABodyThatIsTooLargeIsNotAwaited(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.MaxBody = 1000 })
	for _, test := range []struct{ name, rest string }{
		{"all of it", "Content-Length: 2000\r\nExpect: 100-continue\r\n\r\n"},
		{"a part", "Content-Length: 2000\r\n\r\n" + strings.Repeat(" ", 500)},
		{"a part of chunks", "Transfer-Encoding: chunked\r\n\r\n5dc\r\n" + strings.Repeat(" ", 1500) + "\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			require.NoError(t, err)
			defer c.Close()
			_, err = io.WriteString(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"+test.rest)
			require.NoError(t, err)
			r, err := http.ReadResponse(bufio.NewReader(c), nil)
			require.NoError(t, err)
			require.Equal(t, 413, r.StatusCode)
			_, err = io.ReadAll(r.Body)
			require.NoError(t, err)
		})
	}
}
