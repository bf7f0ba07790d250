package openai_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/testkit/level"
)

const personSchema = `{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer",
	"minimum": 0, "maximum": 150}, "likes": {"type": "array", "items": {"enum": ["tea", "rain"]}, "maxItems": 3}},
	"required": ["name", "age"], "additionalProperties": false}`

// person requires a JSON object that personSchema allows.
func person(t testing.TB, text string) {
	t.Helper()
	var p struct {
		Name  *string
		Age   *int
		Likes []string
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&p), "%q", text)
	require.False(t, d.More(), "%q", text)
	require.NotNil(t, p.Name, "%q", text)
	require.NotNil(t, p.Age, "%q", text)
	require.LessOrEqual(t, len([]rune(*p.Name)), 12)
	require.True(t, *p.Age >= 0 && *p.Age <= 150)
	require.Subset(t, []string{"tea", "rain"}, p.Likes)
	require.LessOrEqual(t, len(p.Likes), 3)
}

func matches(pattern string) func(t testing.TB, text string) {
	return func(t testing.TB, text string) {
		t.Helper()
		require.Regexp(t, regexp.MustCompile(`\A(?:`+pattern+`)\z`), text)
	}
}

func jsonObject(t testing.TB, text string) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), new(map[string]any)), "%q", text)
}

const numbered = `[0-9]{3}-[a-f]{2}`

var forms = []struct {
	name, fields string
	check        func(t testing.TB, text string)
}{
	{"a schema", `"response_format": {"type": "json_schema", "json_schema": {"name": "p", "strict": true, "schema": ` +
		personSchema + `}}`, person},
	{"the schema of an object", `"response_format": {"type": "json_object", "schema": ` + personSchema + `}`, person},
	{"llama.cpp's schema", `"response_format": {"type": "json_schema", "schema": ` + personSchema + `}`, person},
	{"vLLM's schema", `"structured_outputs": {"json": ` + personSchema + `}`, person},
	{"a schema without white space", `"structured_outputs": {"disable_any_whitespace": true, "json": {"type": "object",
		"properties": {"a": {"type": "boolean"}, "b": {"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 2}},
		"required": ["a", "b"], "additionalProperties": false}}`, matches(`\{"a": (true|false), "b": \[1, 1\]\}`)},
	{"OpenAI's schema without white space", `"structured_outputs": {"disable_any_whitespace": true}, "response_format": {"type": "json_schema",
		"json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"enum": [true, "b"]}}, "required": ["a"],
		"additionalProperties": false}}}`, matches(`\{"a": (true|"b")\}`)},
	{"parts without white space", `"structured_outputs": {"disable_any_whitespace": true, "structural_tag": {"format": {"type": "tag", "begin": "<",
		"content": {"type": "json_schema", "json_schema": {"const": [true, null]}}, "end": ">"}}}`, matches(`<\[true, null\]>`)},
	{"the older schema", `"guided_json": ` + personSchema, person},
	{"a schema in a string", `"guided_json": "{\"type\": \"boolean\"}"`, matches(`\s*(true|false)\s*`)},
	{"a regular expression", `"structured_outputs": {"regex": "` + numbered + `"}`, matches(numbered)},
	{"the older expression", `"guided_regex": "` + numbered + `"`, matches(numbered)},
	{"choices", `"structured_outputs": {"choice": ["yes", "no", "perhaps"]}`, matches("yes|no|perhaps")},
	{"the older choices", `"guided_choice": ["größer", "kleiner"]`, matches("größer|kleiner")},
	{"a grammar", `"structured_outputs": {"grammar": "root ::= num (\"+\" num){2}\nnum ::= [0-9]{1,2}"}`,
		matches(`\d{1,2}(\+\d{1,2}){2}`)},
	{"a structural tag", `"response_format": {"type": "structural_tag", "format": {"type": "sequence", "elements": [
		{"type": "const_string", "value": "x="}, {"type": "tag", "begin": "(", "content": {"type": "regex", "pattern": "[a-c]{3}"},
		"end": [")", "]"]}]}}`, matches(`x=\([a-c]{3}[)\]]`)},
	{"vLLM's structural tag", `"structured_outputs": {"structural_tag": "{\"format\": {\"type\": \"tags_with_separator\", ` +
		`\"tags\": [{\"begin\": \"<\", \"content\": {\"type\": \"json_schema\", \"json_schema\": {\"type\": \"boolean\"}}, ` +
		`\"end\": \">\"}], \"separator\": \",\", \"at_least_one\": true, \"stop_after_first\": true}}"}`, matches(`<\s*(true|false)>`)},
	{"the older grammar", `"guided_grammar": "root ::= \"a\" \"b\"{3}"`, matches("abbb")},
}

// noSpace keeps the model from repeating the space that JSON allows.
const noSpace = `, "logit_bias": {"9": -100, "10": -100, "13": -100, "32": -100}, "max_tokens": 200`

func TestAnswersHaveTheForm(t *testing.T) {
	s := start(t, nil)
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			for i, how := range level.First(2, []string{`"seed": 2, "n": 3, "logprobs": %s`,
				`"seed": 3, "temperature": 2, "min_tokens": 3, "repetition_penalty": 1.2`, `"temperature": 0`, `"seed": 1, "ignore_eos": true`}) {
				path, begin, logs := texts, text, "1"
				if i%2 == 1 {
					path, begin, logs = chats, talk, "true"
				}
				a := s.ask(t, path, begin+form.fields+noSpace+", "+strings.ReplaceAll(how, "%s", logs)+`}`)
				require.Equal(t, 200, a.Status, a.Text)
				for _, c := range a.Choices {
					require.Equal(t, "stop", c.Finish, "%q", c.Text+c.Message.Content)
					require.Nil(t, c.StopReason)
					form.check(t, c.Text+c.Message.Content)
				}
			}
		})
	}
	settle(t, s)
}

func TestAnswersAreJSONObjects(t *testing.T) {
	s := start(t, nil)
	for _, field := range []string{`"response_format": {"type": "json_object"}`, `"structured_outputs": {"json_object": true}`} {
		for seed := range 3 {
			a := s.ask(t, texts, text+field+fmt.Sprintf(`, "seed": %d, "max_tokens": 100, "logit_bias": {"125": 100}}`, seed))
			require.Equal(t, 200, a.Status, a.Text)
			require.Equal(t, "stop", a.Choices[0].Finish, a.Text)
			jsonObject(t, a.Choices[0].Text)
		}
	}
}

// Ensure that 64 concurrent streams have the same answers as the same requests alone. Some requests have a form, some
// must or may call a tool, and some have neither.
func TestStreamsWithFormsAreThoseOfTheSameRequestsAlone(t *testing.T) {
	level.SkipNormal(t)
	const n = 64
	tools := `"tools": [{"type": "function", "function": {"name": "f", "parameters": ` + personSchema + `}}], "tool_choice": `
	request := func(i int) (path, body string) {
		more := noSpace + fmt.Sprintf(`, "seed": %d, "temperature": 1.5`, i)
		form := forms[i/4%len(forms)].fields
		switch i % 4 {
		case 0:
			return texts, text + form + more
		case 1:
			return chats, talk + form + more
		case 2:
			return chats, talk + tools + []string{`"required"`, `"auto"`}[i/4%2] + more
		}
		return texts, text + `"echo": false` + strings.Replace(more, "200", "50", 1)
	}
	answer := func(a *reply) (all string) {
		for _, c := range a.Choices {
			all += c.Text + c.Message.Content + c.Delta.Content
			for _, call := range append(c.Message.ToolCalls, c.Delta.ToolCalls...) {
				all += call.Function.Name + call.Function.Arguments
			}
			all += c.Finish
		}
		return all
	}
	s := start(t, func(o *openai.Config, c *engine.Config) {
		c.BlockSize, c.MaxNumSeqs = 8, n
		useTools(t, o, "hermes")
	})
	var alone, together [n]string
	for i := range alone {
		path, body := request(i)
		a := s.ask(t, path, body+"}")
		require.Equal(t, 200, a.Status, a.Text)
		alone[i] = answer(a)
		require.NotEmpty(t, alone[i])
	}
	var wait sync.WaitGroup
	for i := range together {
		wait.Go(func() {
			path, body := request(i)
			together[i] = answer(s.ask(t, path, body+`, "stream": true}`))
		})
	}
	wait.Wait()
	require.Equal(t, alone, together)
	settle(t, s)
}

func TestAnAnswerWithAFormIsCutByMaxTokensAndStopStrings(t *testing.T) {
	s := start(t, nil)
	const form = text + `"guided_regex": "ab{30}c", `
	for _, test := range []struct{ name, fields, want, finish string }{
		{"max_tokens", `"max_tokens": 5`, "abbbb", "length"},
		{"the last token", `"max_tokens": 32`, "a" + strings.Repeat("b", 30) + "c", "stop"},
		{"a stop string", `"max_tokens": 50, "stop": "bbb"`, "a", "stop"},
		{"a token that ends it", `"max_tokens": 50, "stop_token_ids": [98], "include_stop_str_in_output": true`, "ab", "stop"},
		{"a token that may not end it", `"max_tokens": 50, "stop_token_ids": [98], "min_tokens": 4`, "abb", "stop"},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := s.ask(t, texts, form+test.fields+"}")
			require.Equal(t, 200, a.Status, a.Text)
			require.Equal(t, test.want, a.Choices[0].Text)
			require.Equal(t, test.finish, a.Choices[0].Finish)
		})
	}
}

func TestFormsThatCannotBeObeyedAreRefused(t *testing.T) {
	s := start(t, nil)
	for _, test := range []struct{ name, fields, param, says string }{
		{"a keyword", `"guided_json": {"properties": {"a": {"type": "array", "uniqueItems": true}}}`, "guided_json",
			"guided_json cannot be obeyed: JSON Schema, at /properties/a: uniqueItems: "},
		{"a keyword in OpenAI's field", `"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema":
			{"type": "object", "unevaluatedProperties": false}}}`, "response_format", "at /: unevaluatedProperties: "},
		{"an expression", `"structured_outputs": {"regex": "("}`, "structured_outputs", "structured_outputs cannot be obeyed"},
		{"a grammar", `"guided_grammar": "x ::= y"`, "guided_grammar", "guided_grammar cannot be obeyed"},
		{"a type", `"guided_json": {"type": 5}`, "guided_json", "a type is not a string"},
		{"no answer", `"guided_json": false`, "guided_json", "at /: the schema false: no value satisfies it"},
		{"a contradiction", `"guided_json": {"properties": {"a": {"type": "integer", "minimum": 5, "maximum": 3}}, "required": ["a"],
			"type": "object"}`, "guided_json", `at /properties/a: minimum 5 and maximum 3: no value satisfies both, and the member "a" is required.`},
		{"two forms", `"guided_json": {}, "guided_regex": "a"`, "guided_regex", "guided_json and guided_regex both give"},
		{"two forms in one field", `"structured_outputs": {"json": {}, "regex": "a"}`, "structured_outputs", "more than one of"},
		{"no form", `"structured_outputs": {"json_object": false}`, "structured_outputs", "gives no form"},
		{"a structural tag that is no JSON", `"structured_outputs": {"structural_tag": "x"}`, "structured_outputs",
			"structured_outputs cannot be obeyed: structural tag: it is not a JSON object"},
		{"white space", `"structured_outputs": {"json": {}, "disable_any_whitespace": 3}`, "structured_outputs", "true or false is expected"},
		{"no format", `"response_format": {"type": "structural_tag"}`, "response_format", "neither format nor structures"},
		{"an unknown format", `"response_format": {"type": "structural_tag", "format": {"type": "sequence", "elements": [{"type": "exclude_token"}]}}`,
			"response_format", `format.elements[0]: the type "exclude_token" is not supported`},
		{"a tag without its trigger", `"response_format": {"type": "structural_tag", "triggers": ["<a"], "structures": [{"begin": "x", "end": "y"}]}`,
			"response_format", `the tag "x" begins with none of the triggers`},
		{"another type", `"response_format": {"type": "xml"}`, "response_format", `"xml"`},
		{"no type", `"response_format": {}`, "response_format", "The type of response_format is"},
		{"no schema", `"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}`, "response_format", "has no schema"},
		{"nothing inside", `"response_format": {"type": "json_schema"}`, "response_format", "response_format.json_schema is missing"},
		{"a schema for a text", `"response_format": {"type": "text", "schema": {}}`, "response_format", "which only the types json_object and"},
		{"a schema twice", `"response_format": {"type": "json_schema", "schema": {}, "json_schema": {"schema": {}}}`, "response_format",
			"has both schema and json_schema"},
		{"a text", `"response_format": "json"`, "response_format", "response_format is not a JSON object"},
		{"a schema that is no JSON", `"guided_json": "{"`, "guided_json", "is not JSON"},
		{"no choices", `"guided_choice": []`, "guided_choice", "guided_choice is empty; leave it out"},
		{"an empty expression", `"guided_regex": ""`, "guided_regex", "guided_regex is empty"},
		{"an empty grammar", `"guided_grammar": ""`, "guided_grammar", "guided_grammar is empty"},
		{"an empty schema", `"guided_json": ""`, "guided_json", "is not JSON"},
		{"numbers", `"guided_choice": [1, 2]`, "guided_choice", "not a list of strings"},
		{"strict", `"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "strict": "yes"}}`, "response_format",
			"In response_format.json_schema, strict is a JSON string; true or false is expected."},
		{"no name", `"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}`, "response_format",
			"response_format.json_schema has no name; OpenAI's interface and vLLM need one."},
		{"a name", `"response_format": {"type": "json_schema", "json_schema": {"name": 5, "schema": {}}}`, "response_format",
			"name is a JSON number; a string is expected."},
		{"a description", `"response_format": {"type": "json_schema", "json_schema": {"name": "x", "description": [], "schema": {}}}`,
			"response_format", "description is a JSON array; a string is expected."},
		{"a schema in a text", `"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": "{}"}}`, "response_format",
			"The schema in response_format is a string; an object is expected."},
		{"a type", `"response_format": {"type": 5}`, "response_format", "In response_format, type is a JSON number; a string is expected."},
		{"fallback", `"structured_outputs": {"regex": "a", "disable_fallback": "no"}`, "structured_outputs",
			"In structured_outputs, disable_fallback is a JSON string; true or false is expected."},
		{"an object", `"structured_outputs": {"json_object": 1}`, "structured_outputs", "true or false"},
		{"a number", `"structured_outputs": 5`, "structured_outputs", "structured_outputs is not a JSON object"},
		{"choices that are a text", `"structured_outputs": {"choice": "a"}`, "structured_outputs", "not a list of strings"},
		{"an expression that is a list", `"guided_regex": ["a"]`, "guided_regex", "The regular expression in guided_regex is not a string."},
		{"a grammar that is a number", `"guided_grammar": 5`, "guided_grammar", "The grammar in guided_grammar is not a string."},
		{"a field of llama.cpp", `"grammar": "root ::= \"a\""`, "grammar", "use response_format or structured_outputs"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for path, begin := range map[string]string{texts: text, chats: talk} {
				a := s.ask(t, path, begin+test.fields+"}")
				require.Equal(t, 400, a.Status, a.Text)
				require.Equal(t, test.param, a.Error.Param, a.Text)
				require.Contains(t, a.Error.Message, test.says)
			}
		})
	}
	for _, fields := range []string{`"response_format": null`, `"guided_regex": null, "guided_choice": null`, `"structured_outputs": null`,
		`"structured_outputs": {"choice": ["a"], "json": null, "disable_fallback": true, "disable_any_whitespace": false}`} {
		a := s.ask(t, texts, text+fields+"}")
		require.Equal(t, 200, a.Status, a.Text)
	}
}

// Ensure that if no token of the model can continue an answer of the form, at its beginning or later, in a stream or not,
// the error names the form as the cause and says what to do.
func TestAFormThatNoTokenContinuesIsTheClientsError(t *testing.T) {
	s := start(t, nil)
	for _, pattern := range []string{`\\x01`, `\\cA`, `\\x02a`, `ab\\x01`} {
		for path, begin := range map[string]string{texts: text, chats: talk} {
			for _, beside := range []string{"", `, "n": 2`, `, "stream": true`} {
				a := s.ask(t, path, begin+`"max_tokens": 9, "structured_outputs": {"regex": "`+pattern+`"}`+beside+"}")
				require.Contains(t, a.Text, `"invalid_request_error"`, pattern)
				require.Contains(t, a.Text, "no token of the model continues an answer of the form that the request asks for", pattern)
				require.Contains(t, a.Text, "change the form", pattern)
				if !strings.Contains(beside, "stream") {
					require.Equal(t, 400, a.Status, a.Text)
				}
			}
		}
	}
	settle(t, s)
}

// Ensure that if a form allows only one token, the engine takes it without looking at the logits.
func TestTheOnlyTokenIsTakenWithoutLogits(t *testing.T) {
	s := startDamaged(t, "lm_head.weight", 99, nil)
	a := s.ask(t, texts, demo+`"prompt": "12345678", "guided_choice": ["ab"]}`)
	require.Equal(t, 200, a.Status, a.Text)
	require.Equal(t, "ab", a.Choices[0].Text, a.Text)
	require.Equal(t, "stop", a.Choices[0].Finish)
	a = s.ask(t, texts, demo+`"prompt": "12345678", "guided_choice": ["ab", "c"]}`)
	require.Contains(t, a.Text, notFinite)
}

func TestAServerCanForbidWhiteSpaceInAllRequests(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) { c.CompactJSON = true })
	for _, field := range []string{`"guided_json"`, `"response_format": {"type": "json_object", "schema"`} {
		a := s.ask(t, texts, text+field+`: {"const": {"a": [1, 2]}}`+strings.Repeat("}", strings.Count(field, "{"))+`, "max_tokens": 30}`)
		require.Equal(t, 200, a.Status, a.Text)
		require.Equal(t, `{"a": [1, 2]}`, a.Choices[0].Text)
	}
}
