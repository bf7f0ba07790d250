package scenario

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// Ensure that margins.json is the output of the program margins. The README must have the counts that the program
// prints.
func TestTheMarginsAreThoseOfOtherPublishers(t *testing.T) {
	level.SkipNormal(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("another processor may round differently")
	}
	const published = "../cost/published/"
	file := filepath.Join(t.TempDir(), "margins.json")
	cmd := exec.Command("go", "run", "./testdata/margins", "-o", file, published+"others.json")
	cmd.Stderr = os.Stderr
	said, err := cmd.Output()
	require.NoError(t, err)
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	want, err := os.ReadFile(published + "margins.json")
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	lines := strings.Split(strings.TrimSpace(string(said)), "\n")
	count, ok := strings.CutSuffix(lines[len(lines)-1], " quantities are within")
	require.True(t, ok, lines[len(lines)-1])
	readme, err := os.ReadFile(published + "README.md")
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(string(readme)), " "), count+" quantities of the held-out half")
}
