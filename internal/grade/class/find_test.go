package class_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/grade/class"
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

func TestEveryEntryOfAClassFolderIsTold(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		write(t, dir, name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for _, name := range []string{"fine.c", "upper.C", "nested/hw/llm_memory.c", "two/a.c", "two/b.c", "text/a.txt", "zipped/hw.zip"} {
		put(name, "int x;\n")
	}
	put("binary.c", "\x7fELF and more")
	put("zeros.c", strings.Repeat("\x00", 64))
	put("utf16.c", "\xff\xfei\x00n\x00t\x00")
	put("hw.tar.gz", "")
	put("void.c", " \n")
	put(".DS_Store", "")
	put("submission_metadata.yml", "")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.c"), 0o755))
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(dir, "gone.c")))
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(dir, "gone")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe.c"), 0o644))
	all, err := class.Find([]string{dir})
	require.NoError(t, err)
	why := map[string]string{}
	for _, s := range all {
		why[s.Name] = s.Why
	}
	for name, says := range map[string]string{
		"fine": "", "upper": "", "nested": "",
		"two":       `which of "a.c", "b.c" it is, is not clear`,
		"text":      `the upload has "a.txt"`,
		"zipped":    `the upload has "hw.zip": unpack the archive`,
		"binary":    "not C source, but a compiled program",
		"zeros":     "it is a binary file, not C source",
		"utf16":     "not C source, but text in UTF-16",
		"hw.tar.gz": "it is an archive: unpack it",
		"empty":     "the upload has no files in it",
		"folder.c":  "the upload has no files in it",
		"gone":      "it is a link that leads nowhere",
		"gone-2":    "it is a link that leads nowhere",
		"void":      "it is empty",
		"pipe":      "it is not a file, but a pipe",
	} {
		require.Contains(t, why, name)
		require.Contains(t, why[name], says, name)
		require.Equal(t, says == "", why[name] == "", name)
		delete(why, name)
	}
	require.Empty(t, why)
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
