package matrix

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// The assembly in the repository is what its generator writes.
func TestAssemblyIsCurrent(t *testing.T) {
	level.SkipQuick(t)
	dir := t.TempDir()
	s, stubs := filepath.Join(dir, "kernels_amd64.s"), filepath.Join(dir, "kernels_amd64.go")
	out, err := exec.Command("go", "run", "./asm", "-out", s, "-stubs", stubs, "-pkg", "matrix").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, path := range []string{s, stubs} {
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		have, err := os.ReadFile(filepath.Base(path))
		require.NoError(t, err)
		require.Equal(t, body(want), body(have), "run go generate in internal/model/matrix")
	}
}

// body is a file without its first line, which names the command.
func body(file []byte) string {
	return string(regexp.MustCompile(`^[^\n]*\n`).ReplaceAll(file, nil))
}
