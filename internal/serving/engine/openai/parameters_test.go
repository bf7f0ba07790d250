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
