package openai

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"llmmemory/internal/serving/structured"
	"llmmemory/internal/serving/toolparser"
	"llmmemory/internal/testkit/level"
)

// parameterSchemas are schemas of parameters.
var parameterSchemas = []string{
	`{}`, `true`, `{"description": "any"}`, `{"type": "integer", "minimum": 1, "maximum": 9}`, `{"type": "number"}`, `{"type": "boolean"}`,
	`{"type": "null"}`, `{"type": "string"}`, `{"type": "string", "maxLength": 3}`, `{"type": "string", "minLength": 2, "maxLength": 60}`,
	`{"type": "string", "minLength": 1}`, `{"type": "string", "pattern": "^\\n?a?\\n*$", "minLength": 1}`, `{"type": "string", "pattern": "^[a-z<]{2,4}$"}`,
	`{"type": "string", "format": "date"}`, `{"enum": ["red", "blue"]}`, `{"enum": ["", "\n", "a\n", "b\n\n", "\nc", " "]}`, `{"enum": ["a", 1, null, true]}`,
	`{"enum": ["red", null]}`, `{"type": "string", "enum": ["red", null]}`, `{"const": "red"}`, `{"const": "1"}`, `{"const": 12.5}`,
	`{"type": ["string", "null"]}`, `{"type": ["string", "null"], "maxLength": 5}`, `{"type": ["string", "null"], "minLength": 1, "pattern": "^(null|none|x)$"}`,
	`{"type": ["string", "integer"]}`, `{"type": "array", "items": {"type": "string"}, "maxItems": 3}`, `{"type": ["array", "string"]}`,
	`{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 4}}, "required": ["a"]}`,
	`{"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 2}`, `{"$ref": "#/$defs/kind"}`, `{"$ref": "#/$defs/list"}`,
	`{"anyOf": [{"type": "string", "minLength": 3}, {"type": "null"}]}`, `{"anyOf": [{"type": "integer"}, {"type": "null"}]}`, `{"not": {"type": "string"}}`,
	`{"minLength": 2}`, `{"allOf": [{"type": "string"}, {"maxLength": 2}]}`, `{"enum": ["</parameter>", "</arg_value>", "x"]}`,
	`{"type": "string", "enum": ["null", "red", null]}`, `{"anyOf": [{"type": "string"}, {"type": "null"}], "not": {"type": "null"}}`,
}

// drawParameters draws the schema of a tool.
func drawParameters(t *rapid.T) string {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"b", "a b", "c<", "ä", `q"\`}), 0, 3, rapid.ID).Draw(t, "names")
	var properties, required []string
	for _, name := range names {
		shown := string(must(name))
		properties = append(properties, shown+": "+rapid.SampledFrom(parameterSchemas).Draw(t, "schema"))
		if rapid.Bool().Draw(t, "required") {
			required = append(required, shown)
		}
	}
	more := rapid.SampledFrom([]string{``, `, "additionalProperties": false`, `, "additionalProperties": {"type": "string", "maxLength": 2}`,
		`, "additionalProperties": {"type": "integer"}`, `, "required": ["d"]`, `, "maxProperties": 1`, `, "anyOf": [{"required": ["d"]}, {"maxProperties": 2}]`}).Draw(t, "more")
	if len(required) > 0 && !strings.Contains(more, `"required": ["d"]`) {
		more += `, "required": [` + strings.Join(required, ", ") + `]`
	}
	return `{"type": "object", "properties": {` + strings.Join(properties, ", ") + `}, "$defs": {"kind": {"enum": ["one", "two"]}, "list":
		{"type": "array", "items": {"$ref": "#/$defs/kind"}}}` + more + `}`
}

func must(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}

// taggedTokens are tokens of the vocabulary of the test below, besides the bytes. They make the ends of values likely.
var taggedTokens = []string{"</arg_value>", "</parameter>", "\n</parameter>", "\n</parameter>\n", "</arg_value>\n", "\n</", "</param", "null", "true", "None", `\n`, `"}`}

// stroll draws a text that the constraint allows, or "" if the text gets long.
func stroll(t require.TestingT, c *structured.Constraint, random *rand.Rand, tokens [][]byte) string {
	m, mask := c.NewMatcher(), make([]uint64, (len(tokens)+63)/64)
	var text []byte
	for steps := range 400 {
		if m.Done() || m.CanStop() {
			return string(text)
		}
		m.Mask(mask)
		var may, ends []int
		for id := range tokens {
			if mask[id/64]>>(id%64)&1 == 1 && tokens[id] != nil {
				may = append(may, id)
				if id > 256 || strings.Contains("<\"}]>", string(tokens[id])) {
					ends = append(ends, id)
				}
			}
		}
		require.NotEmpty(t, may, "%q", text)
		if len(ends) > 0 && (steps > 150 || random.IntN(3) > 0) {
			may = ends
		}
		id := may[random.IntN(len(may))]
		require.NoError(t, m.Accept(id), "%q after %q", tokens[id], text)
		text = append(text, tokens[id]...)
	}
	return ""
}

// TestCallsBetweenTagsFit draws schemas and calls that a form allows. The parser must find one call in the text and
// nothing else, and another implementation of JSON Schema must find the arguments valid.
func TestCallsBetweenTagsFit(t *testing.T) {
	tokens := make([][]byte, 257)
	for b := range 256 {
		tokens[b] = []byte{byte(b)}
	}
	for _, token := range taggedTokens {
		tokens = append(tokens, []byte(token))
	}
	text, marks := map[int]string{256: "<end>"}, map[int]string{256: "<end>", 257: "</arg_value>", 258: "</parameter>"}
	type family struct {
		name    string
		special map[int]string
	}
	families := []family{{"glm45", marks}, {"qwen3_coder", text}, {"glm45", text}, {"qwen3_coder", marks}, {"kimi_k2", text}}
	for _, one := range level.First(2, families) {
		parser, err := toolparser.Tools(one.name, "")
		require.NoError(t, err)
		v, err := structured.NewVocabulary(tokens, one.special, []int{256})
		require.NoError(t, err)
		t.Run(one.name, func(t *testing.T) {
			ended := 0
			rapid.Check(t, func(t *rapid.T) { ended += checkTagged(t, v, tokens, parser) })
			require.Positive(t, ended)
		})
	}
}

// checkTagged checks calls of one schema, and returns their number.
func checkTagged(t *rapid.T, v *structured.Vocabulary, tokens [][]byte, parser *toolparser.ToolParser) (ended int) {
	parameters := drawParameters(t)
	s := &shape{format: toolparser.Format{Tools: parser}, tools: []tool{{name: "f", parameters: json.RawMessage(parameters), strict: true}}, mode: required, oneCall: true}
	constraint, err := structured.Compile(v, *s.form(&prompt{}))
	if err != nil { // a contradiction
		require.Contains(t, s.refusal(err).Error(), `The schema of the tool "f" cannot be obeyed`)
		t.Skip()
	}
	validator := jsonschema.NewCompiler()
	validator.AssertFormat()
	source, err := jsonschema.UnmarshalJSON(strings.NewReader(parameters))
	require.NoError(t, err)
	require.NoError(t, validator.AddResource("https://example.org/test.json", source))
	schema, err := validator.Compile("https://example.org/test.json")
	require.NoError(t, err)
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	for range 4 {
		text := stroll(t, constraint, random, tokens)
		if text == "" {
			continue
		}
		ended++
		p := s.format.Parser(toolparser.Options{Known: func(name string) bool { return name == "f" }, ParameterKind: newParameterKinds(s.tools).kind})
		one := part{events: append([]toolparser.Event(nil), p.Feed(text)...)}
		one.events = append(one.events, p.Close()...)
		got, about := one.spoken(), fmt.Sprintf("%q of %s", text, parameters)
		require.Empty(t, got.content, about)
		require.Len(t, got.calls, 1, about)
		arguments, err := jsonschema.UnmarshalJSON(strings.NewReader(got.calls[0].arguments))
		require.NoError(t, err, "%s: %s", about, got.calls[0].arguments)
		require.NoError(t, schema.Validate(arguments), "%s: %s", about, got.calls[0].arguments)
	}
	return ended
}

// Ensure that a value is what the parser makes of the text, and that nothing in it contains the text that ends it.
func TestValuesThatAreAllowedBetweenTags(t *testing.T) {
	v := bytesVocabulary(t)
	qwen, err := toolparser.Tools("qwen3_coder", "")
	require.NoError(t, err)
	glm, err := toolparser.Tools("glm45", "")
	require.NoError(t, err)
	for _, test := range []struct {
		parser         *toolparser.ToolParser
		schema         string
		allowed, wrong []string
	}{
		{qwen, `{"type": "object", "additionalProperties": {"type": "integer"}}`, []string{`{"a": 1}`, "{}\n", `{"</paramete>": 1}`}, []string{`{"</parameter>": 1}`, `{"a": "1"}`}},
		{qwen, `{"type": "array"}`, []string{`["a", [1]]`, `["</arg_value>"]`}, []string{`["</parameter>"]`, `[{"a": {"</parameter>": 1}}]`, `['a']`}},
		{glm, `{"type": "array"}`, []string{`["</parameter>"]`}, []string{`["</arg_value>"]`}},
		{qwen, `{"anyOf": [{"type": "string"}, {"type": "null"}], "not": {"type": "null"}}`, []string{"nullx", "", "\n\nx\n"}, []string{"null", " NONE\n", "\u00a0null"}},
		{qwen, `{"type": ["string", "null"], "maxLength": 2}`, []string{"null", "ab", "ab\n", "\nb\n"}, []string{"none", "abc", "\nbc"}},
		{qwen, `{"type": "string", "minLength": 1}`, []string{"\n\n", "\nb", "a</param"}, []string{"\n", ""}},
		{glm, `{"type": "string", "minLength": 1}`, []string{"a", "a\n"}, []string{"\n\n", "\na", "\n", ""}},
		{glm, `{"type": "string"}`, []string{"\n", "", "\na\n\n", "</arg_value"}, nil},
		{glm, `{"enum": ["red", "blue"]}`, []string{"red", "blue\n"}, []string{`"red"`, "redd", " red", "blue\n\n"}},
		{qwen, `{"enum": ["red", 1, null]}`, []string{`"red"`, "1", " null"}, []string{"red", "2"}},
		{qwen, `{}`, []string{"", "a", "{", "1", "None"}, nil},
	} {
		one := tool{name: "f", parameters: json.RawMessage(`{"properties": {"p": ` + test.schema + `}, "required": ["p"]}`)}
		c, err := structured.Compile(v, one.taggedArguments(test.parser.Tagged, false))
		require.NoError(t, err)
		for i, texts := range [][]string{test.allowed, test.wrong} {
			for _, text := range texts {
				tags, m := test.parser.Tagged, c.NewMatcher()
				ok := true
				for _, b := range []byte(tags.Parameter + "p" + tags.Between() + text + tags.ParameterEnd + "\n") {
					ok = ok && m.Accept(int(b)) == nil
				}
				require.Equal(t, i == 0, ok && m.CanStop(), "%q of %s", text, test.schema)
			}
		}
	}
}

// Ensure that parameters that cannot be obeyed are refused by name if the tool is strict or must be called, and can be
// any text otherwise.
func TestParametersThatCannotBeObeyed(t *testing.T) {
	for _, parser := range []string{"glm45", "qwen3_coder"} {
		tools, err := toolparser.Tools(parser, "")
		require.NoError(t, err)
		for schema, reason := range map[string]string{
			`{"properties": {"a": {"type": "array", "uniqueItems": true}}}`:                                               "at /properties/a: uniqueItems: ",
			`{"properties": {"a": {"type": "string", "pattern": "\\bx"}}}`:                                                "at /properties/a: pattern: ",
			`{"properties": {"a": {"type": "string", "format": "iri"}}}`:                                                  `at /properties/a: format: the format "iri"`,
			`{"properties": {"a": {"type": "string", "minLength": 3, "maxLength": 2}}}`:                                   "",
			`{"properties": {"a": {"enum": ["</arg_value></parameter>"]}}, "required": ["a"]}`:                            "no arguments that the schema allows can be written",
			`{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 2}}, "required": ["a"]}`: "at /properties/a: ",
			`{"required": [" a"]}`: `at /: required: " a" cannot be the name of a parameter`,
		} {
			for _, s := range []*shape{{mode: required}, {mode: auto}, {mode: auto}} {
				s.format, s.tools = toolparser.Format{Tools: tools}, []tool{{name: "f", parameters: json.RawMessage(schema), strict: s.mode == auto}}
				all := inductionConstraints()
				all.vocabulary = bytesVocabulary(t)
				_, err := all.get(t.Context(), "client", s, &prompt{})
				if reason == "" {
					require.NoError(t, err, schema)
					continue
				}
				require.Error(t, err, schema)
				require.ErrorContains(t, s.refusal(err), `The schema of the tool "f" cannot be obeyed: `)
				require.ErrorContains(t, err, reason)
			}
		}
		s := &shape{format: toolparser.Format{Tools: tools}, mode: auto, tools: []tool{{name: "f", parameters: json.RawMessage(
			`{"properties": {"a": {"type": "array", "uniqueItems": true}, "b": {"type": "integer"}}, "required": ["a", " x"]}`)}}}
		all := inductionConstraints()
		all.vocabulary = bytesVocabulary(t)
		c, err := all.get(t.Context(), "client", s, &prompt{})
		require.NoError(t, err)
		w, tags := tools.Writing, tools.Tagged
		begin := "I look.\n" + w.Begin + "f" + w.Middle
		for text, want := range map[string]bool{
			begin + tags.Parameter + "a" + tags.Between() + "[1, 1] <" + tags.ParameterEnd + "\n" + w.End: true,
			begin + tags.Parameter + "c": false,
			begin + w.End:                false,
			begin + tags.Parameter + "a" + tags.Between() + "1" + tags.ParameterEnd + " ": false,
		} {
			m := c.NewMatcher()
			var refused error
			for _, b := range []byte(text) {
				if refused == nil {
					refused = m.Accept(int(b))
				}
			}
			require.Equal(t, want, refused == nil, text)
		}
	}
}

// Ensure that references of many parameters to a large schema are not all read. The form and the parser use the same
// kinds.
func TestKindsOfManyReferences(t *testing.T) {
	var parameters []string
	for i := range 2000 {
		parameters = append(parameters, fmt.Sprintf(`"p%04d": {"$ref": "#/$defs/a"}`, i))
	}
	one := tool{name: "f", parameters: json.RawMessage(`{"properties": {` + strings.Join(parameters, ", ") + `}, "$defs": {"a": {"enum": ["` +
		strings.Repeat(`a", "`, 20000) + `"]}}}`)}
	var kinds map[string]toolparser.ParameterKind
	allocs := testing.AllocsPerRun(1, func() { kinds = one.kinds() })
	require.Less(t, allocs, 2_000_000.0)
	require.Equal(t, toolparser.TextParameter, kinds["p0000"])
	require.Equal(t, toolparser.JSONParameter, kinds["p1999"])
	form := one.taggedArguments(&toolparser.Tagged{}, false)
	require.Len(t, kinds, 2000)
	require.Contains(t, form.Parameters.Tags.Strings, "p0000")
	require.NotContains(t, form.Parameters.Tags.Strings, "p1999")
}
