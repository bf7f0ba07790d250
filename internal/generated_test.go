package internal_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that .gitattributes marks exactly those Go and assembly files that begin with the comment of a generated file.
// Other Go files must have at most 400 lines.
func TestFilesAreShortOrMarkedAsGenerated(t *testing.T) {
	attributes, err := os.ReadFile("../.gitattributes")
	require.NoError(t, err)
	var patterns []string
	for line := range strings.Lines(string(attributes)) {
		if pattern, rest, _ := strings.Cut(line, " "); strings.Contains(rest, "linguist-generated") {
			patterns = append(patterns, pattern)
		}
	}
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`) // as go help generate asks for
	found := 0
	eachSource(t, func(name string) {
		if ext := filepath.Ext(name); ext != ".go" && ext != ".s" {
			return
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		marked := false
		for _, pattern := range patterns {
			matched, err := filepath.Match(filepath.Join("..", pattern), name)
			require.NoError(t, err)
			marked = marked || matched
		}
		head, _, _ := bytes.Cut(text, []byte("\n\n"))
		require.Equalf(t, generated.Match(head), marked, "%s: generated, and marked in .gitattributes", name)
		if marked {
			found++
		} else if lines := bytes.Count(text, []byte("\n")); filepath.Ext(name) == ".go" && lines > 400 {
			t.Errorf("%s has %d lines, and at most 400 are allowed: divide it", name, lines)
		}
	})
	require.Positive(t, found)
}
