package structured

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/structured/jsonschema"
)

// Ensure that if no value satisfies a schema, the error names the place and the contradictory keywords. The schema
// may be a form or a part of one.
func TestContradictionsAreNamed(t *testing.T) {
	v := vocabularyOf(t, "a")
	for _, test := range []struct{ schema, path, keywords, reason string }{
		{`false`, "", "the schema false", "no value satisfies it"},
		{`{"enum": []}`, "", "enum []", "no value satisfies it"},
		{`{"not": {}}`, "", "not", "no value satisfies it"},
		{`{"type": "integer", "title": "x", "minimum": 5, "maximum": 3}`, "", "minimum 5 and maximum 3", "no value satisfies both"},
		{`{"type": "integer", "minimum": 1.2, "maximum": 1.8}`, "", `type "integer" and minimum 1.2 and maximum 1.8`, "no value satisfies them all"},
		{`{"$schema": "http://json-schema.org/draft-04/schema#", "type": "number", "minimum": 5, "exclusiveMinimum": true, "maximum": 5}`, "",
			"minimum 5 with exclusiveMinimum true and maximum 5", "no value satisfies both"},
		{`{"type": "string", "minLength": 5, "pattern": "^[a-c]*$", "maxLength": 3}`, "", "minLength 5 and maxLength 3", "no value satisfies both"},
		{`{"type": "string", "pattern": "^a{3}$", "maxLength": 2}`, "", `pattern "^a{3}$" and maxLength 2`, "no value satisfies both"},
		{`{"type": "string", "enum": [1, 2]}`, "", `type "string" and enum [1, 2]`, "no value satisfies both"},
		{`{"allOf": [{"type": "string"}, {"type": "integer"}]}`, "/allOf/0", `type "string" and at /allOf/1 type "integer"`, "no value satisfies both"},
		{`{"$ref": "#/$defs/x", "minLength": 2, "$defs": {"x": {"enum": ["a", "b"]}}}`, "/$defs/x", `enum ["a", "b"] and at / minLength 2`, "no value satisfies both"},
		{`{"type": "object", "properties": {"a": false}, "required": ["a"]}`, "/properties/a", "the schema false",
			`no value satisfies it, and the member "a" is required`},
		{`{"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"const": 3, "type": "null"}}, "required": ["b"]}}, "required": ["a"]}`,
			"/properties/a/properties/b", `const 3 and type "null"`, `no value satisfies both, and the member "b" is required`},
		{`{"type": "object", "properties": {"a": {}}, "additionalProperties": false, "minProperties": 2}`, "",
			"properties with additionalProperties false and minProperties 2", "no value satisfies both"},
		{`{"type": "object", "propertyNames": {"maxLength": 1}, "required": ["ab"]}`, "", `propertyNames and required ["ab"]`, "no value satisfies both"},
		{`{"type": "array", "minItems": 2, "prefixItems": [{}, {"$ref": "#/$defs/x"}], "$defs": {"x": {"const": 1, "minimum": 2}}}`, "/$defs/x",
			"const 1 and minimum 2", "no value satisfies both, and element 1 is required"},
		{`{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}`, "/properties/a", "required",
			`the member "a" would have to contain such a value again, without end`},
	} {
		t.Run(test.schema, func(t *testing.T) {
			schema := Form{JSONSchema: []byte(test.schema)}
			for _, form := range []Form{schema, {AnyOf: []Form{{Text: "a"}, schema}}} {
				_, err := Compile(v, form)
				var unsupported *jsonschema.Unsupported
				require.True(t, errors.As(err, &unsupported), "%v", err)
				require.Equal(t, jsonschema.Unsupported{Path: test.path, Keyword: test.keywords, Reason: test.reason}, *unsupported)
			}
		})
	}
}

// Ensure that the error for an unsupported limit states the largest supported value. An upper limit is ignored if no
// answer can reach it.
func TestLimitsBeyondTheSupportedOnesAreNamed(t *testing.T) {
	v := vocabularyOf(t, `"`, "a", "[", "]", "{", "}")
	for schema, want := range map[string]string{
		`{"type": "string", "minLength": 1000001}`:                           ": minLength: 1000001 is above 1000000",
		`{"type": "string", "minLength": 2000000, "maxLength": 3000000}`:     ": minLength: 2000000 is above 1000000",
		`{"allOf": [{"maxItems": 50000}, {"minItems": 10}]}`:                 "allOf/0: maxItems: 50000 is above 20000",
		`{"allOf": [{"minLength": 2000000}, {"maxLength": 3000000}]}`:        "allOf/0: minLength: 2000000 is above 1000000",
		`{"type": "array", "minItems": 20001}`:                               ": minItems: 20001 is above 20000",
		`{"type": "array", "minItems": 1, "maxItems": 30000}`:                ": maxItems: 30000 is above 20000",
		`{"type": "object", "maxProperties": 20000}`:                         ": maxProperties: 20000 is above 9999",
		`{"properties": {"a": {"minLength": 3, "maxLength": 1e6}}}`:          "",
		`{"type": "string", "minLength": 1000000}`:                           "",
		`{"type": "string", "maxLength": 16777215}`:                          "",
		`{"maxLength": 1e99, "maxItems": 1e99, "maxProperties": 2147483647}`: "",
	} {
		_, err := Compile(v, Form{JSONSchema: []byte(schema)})
		if want == "" {
			require.NoError(t, err, schema)
			continue
		}
		require.ErrorContains(t, err, "at /"+want+", the largest supported value here", schema)
	}
	_, err := Compile(v, Form{JSONSchema: largeConstant(maxConstant+1, "{}")})
	require.ErrorContains(t, err, fmt.Sprintf("required: %d names in one place are more than %d, the largest supported number", maxConstant+1, maxConstant))
	c := compiled(t, v, Form{JSONSchema: []byte(`{"type": "string", "minLength": 2, "maxLength": 3}`)})
	for text, valid := range map[string]bool{`"a"`: false, `"aa"`: true, `"aaa"`: true, `"aaaa"`: false} {
		require.Equal(t, valid, accepts(c, text), text)
	}
}

// maxConstant is the number of members above which a constant is refused for their number.
const maxConstant = 19998

// largeConstant returns a schema that allows one object, which has n members. It also has the schema beside.
func largeConstant(n int, beside string) []byte {
	var members []string
	for i := range n {
		members = append(members, fmt.Sprintf(`"k%d":%d`, i, i%10))
	}
	return fmt.Appendf(nil, `{"const": {%s}, "allOf": [%s]}`, strings.Join(members, ","), beside)
}

// Ensure that the number of members does not multiply the work if the required ones are all that the object may have.
func TestConstantsMayHaveManyMembers(t *testing.T) {
	v := smallVocabulary(t, []byte(`{"k0": 0, "k1": 1}`))
	compiled(t, v, Form{JSONSchema: largeConstant(8192, "{}")})
	for _, n := range []int{37, 38, 512} {
		for _, beside := range []string{`{}`, `{"properties": {"k0": {"type": "integer"}, "k3": {"minimum": 1}, "other": {}}}`, `{"minProperties": 3}`} {
			c := compiled(t, v, Form{JSONSchema: largeConstant(n, beside)})
			var text []string
			for i := range n {
				text = append(text, fmt.Sprintf(`"k%d": %d`, i, i%10))
			}
			whole := "{" + strings.Join(text, ", ") + "}"
			require.True(t, accepts(c, whole), "%d %s", n, beside)
			require.False(t, accepts(c, "{"+strings.Join(text[1:], ", ")+"}"), n)
			require.False(t, accepts(c, "{"+strings.Join(text[:n-1], ", ")+"}"), n)
			require.False(t, accepts(c, "{"+strings.Join(append(text, `"other": 1`), ", ")+"}"), n)
		}
	}
	for schema, texts := range map[string]map[string]bool{
		`{"required": ["a", "b"], "properties": {"c": {}, "a": {}}, "maxProperties": 2, "type": "object"}`: {
			`{"a": 1, "b": 2}`: true, `{"a": 1}`: false, `{"a": 1, "b": 2, "c": 3}`: false, `{"c": 1, "a": 2}`: false, `{"a": 1, "b": 2, "d": 1}`: false},
		`{"properties": {"c": {}, "a": {}}, "additionalProperties": false, "maxProperties": 3, "type": "object"}`: {
			`{}`: true, `{"a": 1}`: true, `{"c": 1, "a": 2}`: true, `{"c": 1, "a": 2, "d": 3}`: false},
		`{"properties": {"c": {}, "a": {}}, "patternProperties": {"^x": {}}, "additionalProperties": false, "maxProperties": 2, "type": "object"}`: {
			`{"c": 1, "a": 2}`: true, `{"c": 1, "a": 2, "x": 3}`: false, `{"xa": 1, "xb": 2, "xc": 3}`: false},
	} {
		c := compiled(t, v, Form{JSONSchema: []byte(schema)})
		for text, valid := range texts {
			require.Equal(t, valid, accepts(c, text), "%s: %s", schema, text)
		}
	}
}
