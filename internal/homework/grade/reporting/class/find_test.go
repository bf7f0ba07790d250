package class_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade/reporting/class"
)

func write(t *testing.T, parts ...string) string {
	t.Helper()
	path := filepath.Join(parts...)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("int x;\n"), 0o644))
	return path
}

func TestEachStudentIsFoundOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "ada", "llm_memory.c")
	write(t, dir, "ada.c")
	write(t, dir, "bob", "main.c") // handed in something else
	write(t, dir, "notes.txt")
	write(t, dir, ".git", "llm_memory.c")
	single := write(t, dir, "cy d.c")
	all, err := class.Find([]string{dir, single})
	require.NoError(t, err)
	require.Equal(t, []class.Submission{
		{Name: "ada", File: filepath.Join(dir, "ada", "llm_memory.c")},
		{Name: "ada-2", File: filepath.Join(dir, "ada.c")},
		{Name: "bob", File: filepath.Join(dir, "bob", "main.c")}, // the only one there is
		{Name: "cy d", File: filepath.Join(dir, "cy d.c")},
		{Name: "notes.txt", File: filepath.Join(dir, "notes.txt"), Why: "it is not a C file: its name does not end in .c"},
		{Name: "cy d-2", File: single},
	}, all)
	_, err = class.Find([]string{t.TempDir()})
	require.ErrorIs(t, err, class.ErrEmpty)
}

func TestTheFolderOfOneStudentIsOneSubmission(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ada")
	file := write(t, dir, "llm_memory.c")
	write(t, dir, "llm_memory.h")
	write(t, dir, "main.c")
	write(t, dir, ".history", "llm_memory.c") // an editor's
	all, err := class.Find([]string{dir})
	require.NoError(t, err)
	require.Equal(t, []class.Submission{{Name: "ada", File: file}}, all)
	write(t, dir, "bob", "llm_memory.c") // now it is a class
	all, err = class.Find([]string{dir})
	require.NoError(t, err)
	require.Len(t, all, 5, "with the hidden folder")
}
