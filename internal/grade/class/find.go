package class

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Submission is one student's file.
type Submission struct {
	Name string // no other of the class has it
	File string
}

// ErrEmpty is wrapped when a folder holds nothing to grade.
var ErrEmpty = errors.New("neither a .c file nor a folder of a student's in it")

// Find lists the submissions: a file itself, of a folder each .c file and each
// folder's llm_memory.c, whether it is there or not, in the order of their names.
func Find(paths []string) ([]Submission, error) {
	var all []Submission
	names := map[string]bool{}
	add := func(name, file string) {
		unique := name
		for n := 2; names[unique]; n++ {
			unique = name + "-" + strconv.Itoa(n)
		}
		names[unique] = true
		all = append(all, Submission{unique, file})
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			name := strings.TrimSuffix(filepath.Base(path), ".c")
			if path, err = filepath.EvalSymlinks(path); err != nil { // a link that somebody names is meant
				return nil, err
			}
			add(name, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		before := len(all)
		for _, e := range entries {
			if name, file := submission(path, e); file != "" {
				add(name, file)
			}
		}
		if len(all) == before {
			return nil, fmt.Errorf("%s: %w", path, ErrEmpty)
		}
	}
	return all, nil
}

func submission(dir string, e fs.DirEntry) (name, file string) {
	path := filepath.Join(dir, e.Name())
	info, err := os.Stat(path) // a link is what it leads to
	switch {
	case strings.HasPrefix(e.Name(), "."):
		return "", ""
	case err == nil && info.IsDir():
		return e.Name(), filepath.Join(path, "llm_memory.c")
	case strings.HasSuffix(path, ".c"):
		return strings.TrimSuffix(e.Name(), ".c"), path
	}
	return "", ""
}
