package openai_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/testkit/level"
)

// An asked is a request whose answer must not depend on the requests before it.
type asked struct{ name, path, body string }

// unique is a schema that cannot be obeyed, and impossible is a schema whose values are too large for any answer.
const (
	unique     = `{"type": "object", "properties": {"ids": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}}`
	impossible = `{"type": "object", "minProperties": 1000000000}`
	plain      = `{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}`
)

// function returns a tool in the form of chats. The parameter fields is further JSON of the function.
func function(name, schema, fields string) string {
	return fmt.Sprintf(`{"type": "function", "function": {"name": %q, "parameters": %s%s}}`, name, schema, fields)
}

// asks returns groups of requests. The requests of a group differ in a few fields or in the path.
func asks() map[string][]asked {
	chat := func(name, fields string) asked {
		return asked{name, "/v1/chat/completions", demo + `"messages": [{"role": "user", "content": "abc {\"n\": 1} abc"}], "max_tokens": 8, ` +
			`"temperature": 0` + fields + `}`}
	}
	complete := func(name, fields string) asked {
		return asked{name, texts, demo + `"prompt": "` + story + `The code of", "max_tokens": 8, "temperature": 0` + fields + `}`}
	}
	tools := func(name, choice string, all ...string) asked {
		list := ""
		for i, one := range all {
			if i > 0 {
				list += ", "
			}
			list += one
		}
		return chat(name, `, "tools": [`+list+`]`+choice)
	}
	const must, strict = `, "tool_choice": "required"`, `, "strict": true`
	const tagged = `, "response_format": {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<tool_call>"], "tags": [` +
		`{"type": "tag", "begin": "<tool_call>\n{\"name\": \"f\", \"arguments\": ", "content": {"type": "json_schema", "json_schema": ` + unique +
		`}, "end": "}\n</tool_call>"}]}}`
	return map[string][]asked{
		"strict": {tools("strict", "", function("f", unique, strict)), tools("not strict", "", function("f", unique, "")),
			tools("required", must, function("f", unique, "")), chat("the same as a structural tag", tagged),
			tools("no arguments are possible, strict", "", function("f", impossible, strict)),
			tools("no arguments are possible", "", function("f", impossible, "")),
			tools("one of two is strict", "", function("f", unique, ""), function("g", unique, strict)),
			tools("the other is strict", "", function("f", unique, strict), function("g", unique, "")),
			tools("none of two is strict", "", function("f", unique, ""), function("g", unique, ""))},
		"tools": {tools("one", must, function("f", plain, "")), tools("another name", must, function("g", plain, "")),
			tools("another schema", must, function("f", `{"type": "object"}`, "")), tools("may be called", "", function("f", plain, "")),
			tools("may not be called", `, "tool_choice": "none"`, function("f", plain, "")),
			tools("one call", must+`, "parallel_tool_calls": false`, function("f", plain, "")), chat("no tools", "")},
		"forms": {complete("no form", ""), complete("a schema", `, "guided_json": {"enum": ["a"]}`),
			complete("another schema", `, "guided_json": {"enum": ["b"]}`), complete("a text with the schema", `, "guided_json": "{\"enum\": [\"a\"]}"`),
			complete("a choice", `, "guided_choice": ["a"]`), complete("a regex", `, "guided_regex": "a"`),
			complete("a grammar", `, "guided_grammar": "a"`), complete("white space", `, "guided_json": {"const": [1, 2]}`),
			complete("no white space", `, "structured_outputs": {"json": {"const": [1, 2]}, "disable_any_whitespace": true}`),
			complete("refused", `, "guided_json": `+unique), complete("refused in another field", `, "response_format": {"type": "json_schema", `+
				`"json_schema": {"name": "x", "schema": `+unique+`}}`),
			complete("a structural tag", `, "structured_outputs": {"structural_tag": {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}}`)},
		"settings": {complete("default", ""), complete("log probabilities", `, "logprobs": 2`), complete("echo", `, "echo": true, "logprobs": 1`),
			complete("bias", `, "logit_bias": {"120": 100}`), complete("forbidden", `, "logit_bias": {"55": -100}`), complete("stop", `, "stop": "K"`),
			complete("log probabilities of the prompt", `, "prompt_logprobs": 1`), complete("salted", `, "cache_salt": "s"`),
			complete("truncated", `, "truncate_prompt_tokens": 9`), complete("two", `, "n": 2, "best_of": 3`),
			complete("beams", `, "use_beam_search": true, "n": 2`), complete("seeded", `, "temperature": 1, "seed": 3`),
			complete("another seed", `, "temperature": 1, "seed": 4`), complete("special tokens", `, "skip_special_tokens": false`)},
		"templates": {chat("default", ""), chat("continued", `, "continue_final_message": true, "add_generation_prompt": false`),
			chat("no prompt of an answer", `, "add_generation_prompt": false`), chat("special tokens", `, "add_special_tokens": true`),
			chat("a variable", `, "chat_template_kwargs": {"enable_thinking": false}`), chat("the other value", `, "chat_template_kwargs": {"enable_thinking": true}`),
			{"counted", "/tokenize", demo + `"messages": [{"role": "user", "content": "abc"}]}`},
			{"a response", respond, bodyOf(respond, `abc {"n": 1} abc`, 8) + "}"}, {"a message", messages, bodyOf(messages, `abc {"n": 1} abc`, 8) + "}"}},
	}
}

// varying is what differs between two answers to the same request: random identifiers and the time, and how much of the
// prompt was in the prefix cache.
var varying = regexp.MustCompile(`"(id|call_id|created|created_at|system_fingerprint)":("[^"]*"|[0-9]+)|` +
	`"(prompt_tokens_details|input_tokens_details)":\{[^}]*\}|"cache_(read|creation)_input_tokens":[0-9]+|"input_tokens":[0-9]+`)

// orders returns the orders in which n requests are sent to a new server: forwards and backwards, so that each pair
// occurs in both orders. In make exhaustive, each pair also has servers of its own.
func orders(n int) (all [][]int) {
	forwards, backwards := make([]int, n), make([]int, n)
	for i := range n {
		forwards[i], backwards[n-1-i] = i, i
		for j := range n {
			if level.Exhaustive() {
				all = append(all, []int{i, j})
			}
		}
	}
	return append(all, forwards, backwards)
}

// early has the names of the requests that make test sends, by group.
var early = map[string][]string{
	"strict":    {"strict", "not strict", "no arguments are possible, strict", "no arguments are possible"},
	"tools":     {"one", "another schema"},
	"forms":     {"no form", "a schema", "another schema", "refused"},
	"settings":  {"default", "log probabilities", "salted"},
	"templates": {"default", "a variable", "the other value"},
}

// Ensure that the answer to a request does not depend on what clients asked before: it must equal the answer of a
// server that has answered nothing else.
func TestOneClientNeverChangesAnothersAnswer(t *testing.T) {
	answer := func(s *served, r asked) string {
		a := s.ask(t, r.path, r.body)
		return fmt.Sprint(a.Status, " ", varying.ReplaceAllString(a.Text, ""))
	}
	for name, group := range asks() {
		if !level.Long() {
			group = slices.DeleteFunc(group, func(r asked) bool { return !slices.Contains(early[name], r.name) })
		}
		t.Run(name, func(t *testing.T) {
			fresh := func() *served {
				return startAll(t, func(c *openai.Config, _ *engine.Config) { useTools(t, c, "hermes") })
			}
			alone := make([]string, len(group))
			for i, r := range group {
				alone[i] = answer(fresh(), r)
			}
			for _, order := range orders(len(group)) {
				s, before := fresh(), "nothing"
				for _, i := range order {
					require.Equal(t, alone[i], answer(s, group[i]), "%s after %s", group[i].name, before)
					before = group[i].name
				}
			}
		})
	}
}
