package class_test

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade"
	"llmmemory/internal/homework/grade/reporting/class"
)

// lay writes files into a folder. A name that ends in a slash is an empty folder. A text "-> TARGET" makes a link.
func lay(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		if target, link := strings.CutPrefix(text, "-> "); link {
			require.NoError(t, os.Symlink(target, file))
		} else if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(file, 0o755))
		} else {
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
	}
}

func zipped(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		w, err := z.Create(name)
		require.NoError(t, err)
		_, err = w.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.String()
}

func TestTheFileIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"as it is asked for":     {map[string]string{"llm_memory.c": "right", "llm_memory.h": "", "main.c": ""}, "llm_memory.c"},
		"in a folder":            {map[string]string{"hw/llm_memory.c": "right", "main.c": ""}, "hw/llm_memory.c"},
		"nearest to the root":    {map[string]string{"llm_memory.c": "right", "old/llm_memory.c": ""}, "llm_memory.c"},
		"in the nearer folder":   {map[string]string{"hw/llm_memory.c": "right", "hw/old/llm_memory.c": ""}, "hw/llm_memory.c"},
		"under another name":     {map[string]string{"Llm_Memory (1).C": "right", "notes.txt": ""}, "Llm_Memory (1).C"},
		"beside what a Mac adds": {map[string]string{"hw/llm_memory.c": "right", "__MACOSX/llm_memory.c": "", ".git/llm_memory.c": "", "._llm_memory.c": ""}, "hw/llm_memory.c"},
		"in a zip":               {map[string]string{"hw.zip": zipped(t, map[string]string{"hw/llm_memory.c": "right"})}, "hw.zip/hw/llm_memory.c"},
		"in a zip in a folder":   {map[string]string{"a/hw.ZIP": zipped(t, map[string]string{"x.c": "right"})}, "a/hw.ZIP/x.c"},
	} {
		dir := t.TempDir()
		lay(t, dir, c.files)
		u, err := class.ReadUpload(dir)
		require.NoError(t, err, name)
		require.Equal(t, class.Upload{c.want, []byte("right")}, u, name)
	}
}

func TestTheFileIsNotFound(t *testing.T) {
	large := strings.Repeat(" ", 1<<20+1)
	for name, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"nothing":            {map[string]string{"empty/": ""}, "no files in it"},
		"something else":     {map[string]string{"llm_memory.cpp": "", "doc/a.txt": ""}, `the upload has "llm_memory.cpp", "doc/a.txt"`},
		"several":            {map[string]string{"a.c": "", "b.c": ""}, `which of "a.c", "b.c" it is, is not clear`},
		"several of a depth": {map[string]string{"a/llm_memory.c": "", "b/llm_memory.c": ""}, `which of "a/llm_memory.c", "b/llm_memory.c" it is`},
		"a folder":           {map[string]string{"llm_memory.c/": ""}, "no files in it"},
		"a link":             {map[string]string{"llm_memory.c": "-> /etc/passwd"}, "no files in it"},
		"behind a link":      {map[string]string{"hw": "-> /etc"}, "no files in it"},
		"too large":          {map[string]string{"llm_memory.c": large}, "larger than 1024 KiB"},
		"too large unpacked": {map[string]string{"a.zip": zipped(t, map[string]string{"llm_memory.c": large})}, "a.zip/llm_memory.c is larger"},
		"no zip":             {map[string]string{"a.zip": "x"}, "a.zip cannot be read"},
		"an empty zip":       {map[string]string{"a.zip": zipped(t, map[string]string{"a.txt": ""})}, `the upload has "a.zip/a.txt"`},
		"two zips":           {map[string]string{"a.zip": "", "b.zip": ""}, `the upload has "a.zip", "b.zip"`},
	} {
		dir := t.TempDir()
		lay(t, dir, c.files)
		_, err := class.ReadUpload(dir)
		require.ErrorIs(t, err, class.ErrUpload, name)
		require.ErrorContains(t, err, c.says, name)
	}
	_, err := class.ReadUpload("/nonexistent")
	require.ErrorIs(t, err, class.ErrUpload, "no folder")
}

func TestManyFilesAreNotAllNamed(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	for i := range 30 {
		files["f"+strings.Repeat("x", i)] = ""
	}
	lay(t, dir, files)
	_, err := class.ReadUpload(dir)
	require.ErrorContains(t, err, ", 20 more")
}

func TestAClassReadsTheZipThatGradescopeReads(t *testing.T) {
	for name, upload := range map[string]map[string]string{
		"at the root":  {"llm_memory.c": "int x;\n"},
		"in a folder":  {"hw/src/llm_memory.c": "int x;\n", "hw/readme": "text"},
		"another name": {"hw3.c": "int x;\n"},
	} {
		t.Run(name, func(t *testing.T) {
			students := t.TempDir()
			dir := filepath.Join(students, "ada")
			require.NoError(t, os.Mkdir(dir, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "hw3.zip"), []byte(zipped(t, upload)), 0o644))
			u, err := class.ReadUpload(dir)
			require.NoError(t, err)
			all, err := class.Find([]string{students})
			require.NoError(t, err)
			require.Len(t, all, 1)
			require.Empty(t, all[0].Why)
			text, err := grade.ReadSource(all[0].File)
			require.NoError(t, err)
			require.Equal(t, u.Text, text)
		})
	}
}
