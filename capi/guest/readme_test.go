package guest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheExampleOfTheReadmePrintsWhatTheReadmeSays(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	example := regexp.MustCompile("(?s)```c\n(.*?)```.*?&& ./example\n    ([^\n]*)\n").FindSubmatch(text)
	require.NotNil(t, example, "the README has an example, its commands and its output")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "example.c"), example[1], 0o644))
	build := library("")
	succeed(t, dir, nil, "gcc", "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "example.c",
		"-I"+root, "-L"+build, "-lllm_memory", "-Wl,-rpath,"+build, "-o", "example")
	require.Equal(t, string(example[2])+"\n", succeed(t, dir, nil, "./example").stdout)
}
