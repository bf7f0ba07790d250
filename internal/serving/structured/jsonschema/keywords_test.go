package jsonschema

import (
	"testing"

	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// Ensure that each keyword that a draft of JSON Schema defines is obeyed, refused or known to limit nothing. The drafts'
// own schemas list the keywords.
func TestEachKeywordOfJSONSchemaIsKnown(t *testing.T) {
	names := map[string]bool{"extends": true, "disallow": true, "divisibleBy": true} // of draft 3
	var collect func(s *validator.Schema)
	collect = func(s *validator.Schema) {
		for name := range s.Properties {
			names[name] = true
		}
		for _, part := range s.AllOf {
			collect(part)
		}
		if s.Ref != nil {
			collect(s.Ref)
		}
	}
	for _, draft := range []string{
		"http://json-schema.org/draft-04/schema", "http://json-schema.org/draft-06/schema", "http://json-schema.org/draft-07/schema",
		"https://json-schema.org/draft/2019-09/schema", "https://json-schema.org/draft/2020-12/schema",
	} {
		s, err := validator.NewCompiler().Compile(draft)
		require.NoError(t, err)
		collect(s)
	}
	require.Greater(t, len(names), 60)
	for name := range names {
		require.NotEqual(t, passive[name], keywordOf(name) != nil, "%s must either have a function or be passive", name)
	}
	require.False(t, passive["x-order"] || keywordOf("x-order") != nil)
}
