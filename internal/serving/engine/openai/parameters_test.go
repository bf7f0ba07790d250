package openai

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/toolparser"
)

func TestTheSchemaSaysHowAParameterIsRead(t *testing.T) {
	for schema, want := range map[string]toolparser.ParameterKind{
		`{"type": "string"}`:            toolparser.TextParameter,
		`{"type": ["string", "null"]}`:  toolparser.TextOrNullParameter,
		`{"enum": ["a", null]}`:         toolparser.TextOrNullParameter,
		`{"type": "integer"}`:           toolparser.JSONParameter,
		`{}`:                            toolparser.JSONParameter,
		`{"enum": ["a", 1]}`:            toolparser.JSONParameter,
		`{"type": "array"}`:             toolparser.StructureParameter,
		`{"type": "object"}`:            toolparser.StructureParameter,
		`{"items": {"type": "string"}}`: toolparser.StructureParameter,
		`{"anyOf": [{"type": "array"}, {"type": "null"}]}`: toolparser.StructureParameter,
		`{"type": ["array", "string"]}`:                    toolparser.StructureParameter,
	} {
		kinds := newParameterKinds([]tool{{name: "f", parameters: json.RawMessage(`{"properties": {"p": ` + schema + `}}`)}})
		require.Equal(t, want, kinds.kind("f", "p"), schema)
	}
}

// Ensure that a schema whose properties are no object allows any parameter, as a schema without properties does.
func TestPropertiesThatAreNoObjectAllowAnyParameter(t *testing.T) {
	tags := &toolparser.Tagged{Parameter: "<parameter=", ParameterEnd: "</parameter>"}
	want := (&tool{parameters: json.RawMessage(`{}`)}).taggedArguments(tags, true)
	for _, properties := range []string{`[1, 2]`, `[true]`, `["a", 1]`, `[[]]`, `"a"`, `5`, `null`} {
		one := tool{parameters: json.RawMessage(`{"properties": ` + properties + `}`)}
		require.Equal(t, want, one.taggedArguments(tags, true), properties)
	}
}
