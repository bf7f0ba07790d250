package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/grader"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

const (
	evil = "a\x1b[31mred\x07\n\u202e"
	full = "14.00" // points
)

var long = strings.Repeat("n", 253)

func oddEntries(right string) map[string]string {
	header, huge := string(grader.Header), "/* "+strings.Repeat("x", 2<<20)+" */\n"+right
	return map[string]string{
		"ada.c": right, "bob.c": strings.ReplaceAll(right, "\n", "\r\n"), "cy/llm_memory.c": "int x = ; /* cy */\n",
		"dan/hw3/src/llm_memory.c": "int x = ; /* dan */\n", ".hidden/llm_memory.c": right, ".git/config": "", ".cache.c": right, ".empty/readme": "",
		"eve/llm_memory.c": right + "/* eve */\n", "eve/llm_memory.h": strings.Replace(header, "#define L1_PT_SIZE 16", "#define L1_PT_SIZE 32", 1),
		"fay/llm_memory.c": right + "/* fay */\n", "fay/llm_memory.h": strings.ReplaceAll(header, "\n", "\r\n"),
		"gus/a.c": right, "gus/b.c": right, "hal/notes.txt": "later", "ida/hw.zip": "PK\x03\x04", "jon.zip": "PK\x03\x04", "kim.tar.gz": "\x1f\x8b",
		"lea.c": "", "kai.c": strings.Repeat("\x00", 64), "max.c": " \n\t\n", "ned.c": "\x7fELF\x02\x01", "oda.c": "%PDF-1.7", "pat.c": "\xff\xfei\x00n\x00t\x00", "quy.c": huge,
		"ray.c": "int main(void) { return 0; }\n", "sam.c": "int x = ;\n", "\xff\xfe\xfd.c": "int x = ;\n", "t\nab\t.c": "int x = ;\n",
		"=cmd.c": "int x = ;\n", "-h.c": "int x = ;\n", "uma.C": "int x = ; /* uma */\n", "vic.cpp": right, "wim/LLM_MEMORY.C": "int x = ; /* wim */\n",
		"xia/llm_memory.c/readme": "a folder", "yan/llm_memory.c": right + "/* eve */\n", "zoe/._llm_memory.c": "\x00\x05", "zoe/llm_memory.c": "int x = ; /* zoe */\n",
		"submission_metadata.yml": "", "notes.txt": "", "abe/.solution/llm_memory.c": right, "bea.c": "#include \"/etc/passwd\"\n" + right,
		"cid.c": "\xef\xbb\xbf" + right, "dot.c": right[:len(right)/2], "eli.c": strings.Repeat("(", 90000), evil + ".c": "int \x1b[31m;\n", "=1+1.c": "int x = ;\n", long + ".c": "int x = ;\n",
		"asm.c": right + "\nvoid *volatile p;\nstatic void f(void) {\n    __asm__(\"nop\");\n}\nvoid (*volatile q)(void) = f;\n",
	}
}

// oddOutcomes maps unusual files to their points, or to a part of the reason why they have none.
var oddOutcomes = map[string]string{
	"ada": full, "bob": full, "eve": full, "fay": full, "cid": full, "cy": "error", "dan": "error", "uma": "error", "wim": "error", "zoe": "error",
	".hidden": "begins with a dot", "gus": "is not clear", "hal": "notes.txt", "ida": "unpack the archive", "jon.zip": "archive", "kim.tar.gz": "archive",
	"lea": "it is empty", "kai": "binary file", "max": "it is empty", "ned": "compiled program", "oda": "PDF", "pat": "UTF-16", "nobody": "no files", "broken": "leads nowhere",
	"pipe": "pipe", "link": "it is a link", "vic.cpp": "not a C file", "notes.txt": "not a C file", "xia": "not a file", "abe": "no files", "sam": "error", "dot": "error",
	"asm": "__asm__ is assembly code", `a\x1b[31mred\x07\x0a\u202e`: "", "'=1+1": "error", long: "error",
}

func TestAClassOfOddEntries(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	students, out := t.TempDir(), filepath.Join(t.TempDir(), "grades")
	right := corpus.Correct(t)
	for name, text := range oddEntries(right) {
		write(t, filepath.Join(students, name), text)
	}
	require.NoError(t, os.Mkdir(filepath.Join(students, "nobody"), 0o755))
	require.NoError(t, os.Symlink(filepath.Join(students, "ada.c"), filepath.Join(students, "link.c")))
	require.NoError(t, os.Symlink("/nowhere", filepath.Join(students, "broken.c")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(students, "pipe.c"), 0o644))
	status, said, warned := run(t, "--only", "task1_accepts", "--html", out, students)
	require.Equal(t, 1, status, warned)
	page, err := os.ReadFile(filepath.Join(out, "index.html"))
	require.NoError(t, err)
	table, err := os.ReadFile(filepath.Join(out, "grades.csv"))
	require.NoError(t, err)
	few := t.TempDir()
	for _, name := range []string{"t\nab\t", "\xff\xfe\xfd", evil} {
		write(t, filepath.Join(few, name+".c"), "int \x1b[31m;\n")
	}
	_, inJSON, _ := run(t, "--json", few)
	_, plain, _ := run(t, few)
	for _, text := range []string{said, warned, string(page), string(table), inJSON, plain} {
		require.NotRegexp(t, `[\x00-\x08\x0b-\x1f\x7f\x{80}-\x{9f}\x{202e}]`, text)
	}
	lines := grades(t, out)
	names := []string{}
	for _, line := range lines[1:] {
		names = append(names, line[0])
	}
	require.Len(t, names, 45, names)
	for _, line := range lines[1:] {
		require.Equal(t, full, line[slices.Index(lines[0], "max_score")], line)
	}
	for name, want := range oddOutcomes {
		if want == full {
			require.Equal(t, full, cell(t, out, name, "score"), name)
		} else {
			require.Equal(t, "0.00", cell(t, out, name, "score"), name)
			require.Contains(t, cell(t, out, name, "reason"), want, name)
		}
		require.NotEmpty(t, cell(t, out, name, "rules"), name)
	}
	for name, rejected := range map[string]string{"asm": "gate", "sam": "compile", "gus": "no file"} {
		require.Equal(t, rejected, cell(t, out, name, "rejected"))
	}
	require.Contains(t, string(page), "Refused: attacks, or what looks like one (")
	files, err := filepath.Glob(filepath.Join(out, "students", "*.html"))
	require.NoError(t, err)
	require.Len(t, files, len(names))
	require.Equal(t, "the same file as that of bob", cell(t, out, "ada", "notes"))
	require.Contains(t, warned, "warning: the same file: ada, bob\n")
	require.Contains(t, cell(t, out, "eve", "notes"), "the llm_memory.h beside the file is not the course's")
	require.Contains(t, cell(t, out, "eve", "notes"), "the same file as that of yan")
	require.Empty(t, cell(t, out, "fay", "notes"))
	require.Empty(t, cell(t, out, "cy", "notes"))
}
