package guest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

// A student's homework folder, with files that must not be lost.
func studentsFolder(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.Mkdir(dir, 0o755))
	homework(t, dir, "scenario")
	header := read(t, dir, "llm_memory.h")
	write(t, dir, "llm_memory.h", header+"/* the course's own */\n")
	write(t, dir, "llm_memory.c", "/* a night's work */\n")
	write(t, dir, "Makefile", "all: ; @echo the course's own\n")
	return dir
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	return string(content)
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
}

func buildAndRun(t *testing.T, dir string, env ...string) result {
	t.Helper()
	line := append([]string{"gcc"}, strings.Fields(courseFlags)...)
	succeed(t, dir, nil, append(line, "llm_memory.c", "grader.c", "-o", "prog")...)
	return run(t, dir, env, filepath.Join(dir, "prog"))
}

func TestTheDropinKeepsEverythingThatIsTheStudents(t *testing.T) {
	t.Parallel()
	need(t, "gcc")
	for i, name := range []string{"homework", "my home work", "a&b|c"} {
		dir := studentsFolder(t, name)
		header := read(t, dir, "llm_memory.h")
		for range 1 + i%2 { // the second of them twice, which changes nothing
			r := runMake(t, "dropin", "DIR="+dir)
			require.Zero(t, r.status, r.stderr)
			require.Equal(t, "/* a night's work */\n", read(t, dir, "llm_memory.c.orig"))
			require.Equal(t, header, read(t, dir, "llm_memory.h"))
			require.Equal(t, "all: ; @echo the course's own\n", read(t, dir, "Makefile"))
			r = buildAndRun(t, dir)
			require.Zero(t, r.status, r.stderr)
		}
		// Ensure that the program finds the library after the program is moved to another folder.
		elsewhere := filepath.Join(t.TempDir(), "prog")
		require.NoError(t, os.Rename(filepath.Join(dir, "prog"), elsewhere))
		succeed(t, t.TempDir(), nil, elsewhere)
	}
}

func TestTheDropinRefusesToOverwriteASavedFile(t *testing.T) {
	t.Parallel()
	dir := studentsFolder(t, "homework")
	write(t, dir, "llm_memory.c.orig", "/* last week's work */\n")
	r := runMake(t, "dropin", "DIR="+dir)
	require.NotZero(t, r.status)
	require.Contains(t, r.stderr, "llm_memory.c.orig exists already")
	require.Equal(t, "/* last week's work */\n", read(t, dir, "llm_memory.c.orig"))
	require.Equal(t, "/* a night's work */\n", read(t, dir, "llm_memory.c"))
}

func TestTheDropinSaysWhatIsWrongWithItsFolder(t *testing.T) {
	t.Parallel()
	require.Contains(t, runMake(t, "dropin").stderr, "say where")
	require.Contains(t, runMake(t, "dropin", "DIR="+filepath.Join(t.TempDir(), "none")).stderr, "is not a folder")
}

func TestWithoutTheLibraryTheDropinSaysWhereItLookedAndEveryCallFails(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	need(t, "gcc")
	dir := t.TempDir()
	homework(t, dir, "unusable")
	r := runMake(t, "dropin", "DIR="+dir)
	require.Zero(t, r.status, r.stderr)
	installed := filepath.Join(dir, "libllm_memory.so.1")
	moved := filepath.Join(t.TempDir(), "moved.so")
	require.NoError(t, os.Rename(installed, moved))
	// Built beside another folder's binary, so that the two places differ.
	line := append([]string{"gcc"}, strings.Fields(courseFlags)...)
	elsewhere := filepath.Join(t.TempDir(), "prog")
	succeed(t, dir, nil, append(line, "llm_memory.c", "grader.c", "-o", elsewhere)...)

	r = succeed(t, dir, nil, elsewhere)
	for _, place := range []string{installed, filepath.Join(filepath.Dir(elsewhere), "libllm_memory.so.1"), "LLM_MEMORY_LIB"} {
		require.Contains(t, r.stderr, place)
	}
	require.Equal(t, 1, strings.Count(r.stderr, "not usable"), "it is printed once")

	r = succeed(t, dir, []string{"LLM_MEMORY_LIB=/nowhere/lib.so"}, elsewhere)
	require.Contains(t, r.stderr, "/nowhere/lib.so")

	homework(t, dir, "scenario")
	succeed(t, dir, nil, append(line, "llm_memory.c", "grader.c", "-o", elsewhere)...)
	succeed(t, dir, []string{"LLM_MEMORY_LIB=" + moved}, elsewhere)
}
