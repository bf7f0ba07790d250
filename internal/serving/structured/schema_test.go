package structured

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// smallVocabulary returns a vocabulary of all bytes and of pieces of the texts. Many pieces begin inside one
// lexeme and end inside another.
func smallVocabulary(t *testing.T, texts ...[]byte) *Vocabulary {
	random := rand.New(rand.NewPCG(1, 2))
	known := map[string]bool{}
	var tokens []string
	add := func(token string) {
		if token != "" && !known[token] {
			known[token] = true
			tokens = append(tokens, token)
		}
	}
	for b := range 256 {
		add(string([]byte{byte(b)}))
	}
	for _, token := range []string{`{"`, `":`, `": "`, `",`, `", "`, `"}`, `"},`, `}}`, `]}`, "\n  \"", "  ", `\u`, `\u00`, `\"`, `"a":`, `"a`, `a"`, `1,`, `0]`, `.5`} {
		add(token)
	}
	for _, text := range texts {
		for range 60 {
			start := random.IntN(len(text))
			add(string(text[start:min(len(text), start+1+random.IntN(7))]))
		}
	}
	return vocabularyOf(t, tokens...)
}

// Ensure that a mask contains exactly the tokens accepted by the matcher, at each point of each instance of the
// sample. The matcher accepts byte by byte, while masks use cached results for lexemes.
func TestMasksHaveWhatIsAccepted(t *testing.T) {
	for _, c := range readCases(t, filepath.Join("testdata", "sample.jsonl")) {
		t.Run(c.Name, func(t *testing.T) {
			for _, test := range c.Tests {
				text := spaced(test.Data)
				v := smallVocabulary(t, text, []byte(c.Schema))
				for _, compact := range []bool{false, true} {
					m := compiled(t, v, Form{JSONSchema: c.Schema, Compact: compact}).NewMatcher()
					for _, token := range v.tokenize(text) {
						requireMaskIsAccepted(t, m, string(text))
						if m.Accept(token) != nil {
							break
						}
					}
					requireMaskIsAccepted(t, m, string(text))
					require.Equal(t, test.Valid, m.CanStop(), "%t %s", compact, text)
				}
			}
		})
	}
}

func requireMaskIsAccepted(t *testing.T, m *Matcher, text string) {
	v := m.constraint.vocabulary
	mask := make([]uint64, v.Words())
	m.Mask(mask)
	for id, token := range v.tokens {
		accepted := m.Clone().Accept(id) == nil
		require.Equal(t, accepted, mask[id/64]>>(id%64)&1 == 1, "token %q after %d tokens of %s", token, m.Len(), text)
	}
}

// Ensure that an answer of random allowed tokens can always be continued or ended. Another implementation of JSON
// Schema must find the answer valid.
func TestRandomAnswersAreValid(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, c := range readCases(t, filepath.Join("testdata", "sample.jsonl")) {
		if c.Name == "nullable" { // not of JSON Schema
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			validator := jsonschema.NewCompiler()
			validator.AssertFormat()
			source, err := jsonschema.UnmarshalJSON(bytes.NewReader(c.Schema))
			require.NoError(t, err)
			require.NoError(t, validator.AddResource("https://example.org/test.json", source))
			schema, err := validator.Compile("https://example.org/test.json")
			require.NoError(t, err)
			v := smallVocabulary(t, c.Schema)
			constraint := compiled(t, v, Form{JSONSchema: c.Schema})
			for range 20 {
				text, ended := randomAnswer(t, constraint, random)
				if !ended {
					continue
				}
				answer, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
				require.NoError(t, err, "%q", text)
				require.NoError(t, schema.Validate(answer), "%q", text)
			}
		})
	}
}

// randomAnswer returns an answer of random tokens, and whether it has ended. A long answer is cut off.
func randomAnswer(t *testing.T, c *Constraint, random *rand.Rand) ([]byte, bool) {
	v := c.vocabulary
	mask := make([]uint64, v.Words())
	m := c.NewMatcher()
	var text []byte
	for steps := 0; steps < 400; steps++ {
		if m.Done() || m.CanStop() && (steps > 40 || random.IntN(8) == 0) {
			return text, true
		}
		m.Mask(mask)
		var choices []int
		for id, token := range v.tokens {
			if mask[id/64]>>(id%64)&1 == 1 && len(token) > 0 {
				choices = append(choices, id)
				if token[0] == '"' || token[0] == '}' || token[0] == ']' { // ends are more likely than their number
					choices = append(choices, id, id, id, id, id)
				}
			}
		}
		require.NotEmpty(t, choices, "%q", text)
		token := choices[random.IntN(len(choices))]
		require.NoError(t, m.Accept(token))
		text = append(text, v.tokens[token]...)
	}
	return text, false
}

// Ensure that several members with the same name count as one for minProperties. If a schema could need two of them,
// it is refused.
func TestMembersWithEqualNamesCountOnce(t *testing.T) {
	for schema, refusal := range map[string]string{
		`{"minProperties": 2}`:                          "minProperties",
		`{"minProperties": 2, "properties": {"a": {}}}`: "minProperties",
		`{"minProperties": 2, "additionalProperties": false, "patternProperties": {"^k": {}}}`: "minProperties",
		`{"properties": {"x": {"not": {"maxProperties": 1}}}, "required": ["x"]}`:              "at /properties/x/not: maxProperties: its negation demands",
		`{"minProperties": 1}`:                    "",
		`{"minProperties": 2, "required": ["a"]}`: "",
		`{"minProperties": 2, "properties": {"a": {}, "b": {}}, "additionalProperties": false}`:            "",
		`{"minProperties": 3, "properties": {"a": {}, "b": {}}, "required": ["a", "b"], "type": "object"}`: "",
	} {
		v := smallVocabulary(t, []byte(schema))
		_, err := Compile(v, Form{JSONSchema: []byte(schema)})
		if refusal == "" {
			require.NoError(t, err, schema)
		} else {
			require.ErrorContains(t, err, refusal, schema)
		}
	}
}

// Ensure that if a schema would take exponential work, it is refused with an error after bounded work.
func TestSchemasThatExplodeAreRefused(t *testing.T) {
	source, err := os.ReadFile(filepath.Join("testdata", "explode.json"))
	require.NoError(t, err)
	for name, schema := range parseMembers(t, source) {
		_, err := Compile(smallVocabulary(t, []byte("x")), Form{JSONSchema: schema})
		require.Error(t, err, name)
		require.Less(t, len(err.Error()), 400, name)
	}
}

func parseMembers(t *testing.T, source []byte) map[string][]byte {
	out := map[string][]byte{}
	root := parseTree(source)
	require.NotNil(t, root)
	for i, name := range root.names {
		out[name] = root.items[i].append(nil)
	}
	return out
}

// Ensure that conditions for the values of a required member take work that grows like their number, not like the number
// of sets of them, and that each value keeps its condition.
func TestConditionsForTheValuesOfAMember(t *testing.T) {
	const kinds = 20
	var all []string
	for i := range kinds {
		all = append(all, fmt.Sprintf(`{"if": {"properties": {"kind": {"const": "k%d"}}, "required": ["kind"]}, "then": {"properties": {"size": {"const": %d}}}}`, i, i))
	}
	schema := `{"type": "object", "properties": {"kind": {"type": "string"}, "size": {"type": "integer"}}, "allOf": [` + strings.Join(all, ",") + `]}`
	v := smallVocabulary(t, []byte(schema))
	c, err := CompileWithin(context.Background(), v, Form{JSONSchema: []byte(schema)}, 400_000)
	require.NoError(t, err)
	for text, valid := range map[string]bool{
		`{"kind": "k3", "size": 3}`:    true,
		`{"kind": "k3", "size": 4}`:    false,
		`{"kind": "k19", "size": 19}`:  true,
		`{"kind": "other", "size": 7}`: true,
		`{"kind": "k3"}`:               true,
		`{"size": 7}`:                  true,
		`{}`:                           true,
	} {
		require.Equal(t, valid, accepts(c, text), text)
	}
}

// Ensure that compact texts have a space after each comma and colon, and no other white space.
func TestCompactTexts(t *testing.T) {
	v := smallVocabulary(t, []byte(`{"a": [1, "x"], "other": {}}`))
	for _, form := range []Form{{JSONObject: true}, {JSONSchema: []byte(`{"properties": {"a": {"items": {"type": ["integer", "string"]}},
		"b": {"enum": ["y", 2]}, "c": {"pattern": "^z"}, "d": {"minimum": 3}}, "patternProperties": {"^p": {"maxLength": 3}}}`)}} {
		form.Compact = true
		c := compiled(t, v, form)
		for text, valid := range map[string]bool{
			`{}`: true, `{"a": [1, "x"], "other": {"p": null}}`: true, `{"b": "y", "c": "z", "d": 3, "pq": "1"}`: true, `{"a": [], "q": {}}`: true,
			`{"a":1}`: false, `{"a" : 1}`: false, `{"a":  1}`: false, `{ }`: false, `{ "a": 1}`: false, `{"a": [ 1]}`: false, `{"a": [1 ]}`: false,
			`{"a": [1,2]}`: false, `{"a": [1,  2]}`: false, `{"a": 1,"q": 2}`: false, ` {}`: false, "{\"q\":\n1}": false, `{"b": 2 }`: false, `{"pq":"1"}`: false,
		} {
			require.Equal(t, valid, accepts(c, text), text)
		}
	}
}

// Ensure that integers have no fraction. The exception is a number with a fraction in enum or const, if the type
// allows it.
func TestIntegersAreWrittenWithoutFraction(t *testing.T) {
	v := vocabularyOf(t, "1", "0", ".", "e", "2", "-", "5", "6", "E", "+")
	for _, test := range []struct {
		schema             string
		accepted, rejected []string
	}{
		{`{"type": "integer"}`, []string{"1", "-10", "0"}, []string{"1.0", "1e2"}},
		{`{"enum": [1, 2]}`, []string{"1", "2"}, []string{"1.0", "2.0", "1e0"}},
		{`{"const": 1.0}`, []string{"1", "1.0"}, []string{"1.00"}},
		{`{"enum": [1e2, 2.50]}`, []string{"100", "1e2", "2.50"}, []string{"1.0e2", "2.500"}},
		{`{"type": "integer", "enum": [1.0, 1e2]}`, []string{"1", "100"}, []string{"1.0", "1e2"}},
		{`{"allOf": [{"enum": [1.0]}, {"maximum": 1}]}`, []string{"1", "1.0"}, nil},
		{`{"type": "number", "maximum": 1}`, []string{"1", "1.0", "-2.0", "1e-05", "1E0", "-1e+20"}, []string{"2", "1e1", "1.0001e0"}},
		{`{"type": "number", "minimum": 0}`, []string{"1e-06", "15e+2", "0.5E0", "-0.0"}, []string{"-1e-06", "1e", "01"}},
		{`{"const": 0.000001}`, []string{"1e-06", "1e-6", "0.000001"}, []string{"1e-5"}},
	} {
		c := compiled(t, v, Form{JSONSchema: []byte(test.schema)})
		for _, text := range test.accepted {
			require.True(t, accepts(c, text), "%s: %s", test.schema, text)
		}
		for _, text := range test.rejected {
			require.False(t, accepts(c, text), "%s: %s", test.schema, text)
		}
	}
}

// Ensure that the error for a oneOf that cannot be obeyed, because its alternatives may overlap, says what to do.
func TestAlternativesThatMayOverlapSayWhatToDo(t *testing.T) {
	v := smallVocabulary(t, []byte("x"))
	const form = `{"$ref": "#/$defs/e", "$defs": {"e": {"oneOf": [
		{"type": "object", "properties": {"a": {"$ref": "#/$defs/e"}}, "required": ["a"], %s}, {"type": "object", "required": ["b"]}]}}}`
	for beside, want := range map[string]string{
		`"additionalProperties": {"type": "null"}`:         "patternProperties or additionalProperties",
		`"patternProperties": {"^x": {"type": "integer"}}`: "patternProperties or additionalProperties",
		`"propertyNames": {"maxLength": 1}`:                "propertyNames",
	} {
		_, err := Compile(v, Form{JSONSchema: fmt.Appendf(nil, form, beside)})
		require.ErrorContains(t, err, "at /$defs/e/oneOf/0: not: the negation of "+want+" is not supported")
		require.ErrorContains(t, err, "give each alternative of oneOf a required member with another const, or use anyOf")
	}
	_, err := Compile(v, Form{JSONSchema: []byte(`{"oneOf": [{"$ref": "#"}, {"type": "integer"}]}`)})
	require.ErrorContains(t, err, "the schema refers to itself before it says anything of a value")
}
