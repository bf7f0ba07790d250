package reproduce

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"llmmemory/grader"
	"llmmemory/internal/homework/course/trace"
	"llmmemory/internal/homework/grade/judging/traces"
)

//go:embed README.txt
var readme []byte

//go:embed Makefile.in
var makefile []byte

// ErrNotEmpty is wrapped if the folder has files already.
var ErrNotEmpty = errors.New("the folder is not empty: name another")

// WriteFolder writes a folder that staff can hand out to students. It has the visible traces, as text and as C programs
// that check themselves, and instructions. WriteFolder returns the number of traces and the number of programs.
func WriteFolder(dir string) (lists, programs int, err error) {
	cases, err := traces.Directed()
	if err != nil {
		return 0, 0, err
	}
	for _, folder := range []string{dir, filepath.Join(dir, "programs"), filepath.Join(dir, "traces")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return 0, 0, err
		}
		if entries, err := os.ReadDir(folder); err != nil || len(entries) > 0 {
			return 0, 0, errors.Join(err, fmt.Errorf("%s: %w", folder, ErrNotEmpty))
		}
	}
	files := map[string][]byte{"README.txt": readme, "Makefile": makefile, "llm_memory.h": grader.Header}
	for _, c := range cases {
		if c.Advice { // advice gives no points
			continue
		}
		files[filepath.Join("traces", c.Name+".trace")] = []byte(trace.Text(c.Name+": "+c.Sentence, c.Ops))
		lists++
		if program := checks(c.Name, c.Sentence, c.Ops); program != "" {
			files[filepath.Join("programs", c.Name+".c")] = []byte(program)
			programs++
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return 0, 0, err
		}
	}
	return lists, programs, nil
}
