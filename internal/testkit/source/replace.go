package source

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Replace returns the path of an overlay for go build -overlay. With the overlay, the build uses a copy of file in which
// the text old is replaced by the text replacement. The text old must occur exactly once in file.
func Replace(t testing.TB, file, old, replacement string) string {
	t.Helper()
	file, err := filepath.Abs(file)
	require.NoError(t, err)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), old), "how often %s contains %q", file, old)
	dir := t.TempDir()
	changed := filepath.Join(dir, "changed.go")
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), old, replacement, 1)), 0o600))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	require.NoError(t, err)
	list := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(list, overlay, 0o600))
	return list
}
