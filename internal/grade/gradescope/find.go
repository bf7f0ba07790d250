package gradescope

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// wanted is the name that the handout gives the file.
const wanted = "llm_memory.c"

// ErrUpload is wrapped by what keeps an upload from being graded. The text is for
// the student.
var ErrUpload = errors.New("there is no " + wanted + " to grade")

// Bounds of what is looked at.
const (
	mostBytes = 1 << 20 // of the file
	mostFiles = 2000
	mostDepth = 6
)

// An upload is the one file of it that is graded.
type upload struct {
	name string // as it was uploaded
	text []byte
}

// find looks for the file in what was uploaded: llm_memory.c, also in a folder or
// a zip; else the only .c file there is. Links are never followed: the grader may
// read what a student may not.
func find(dir string) (upload, error) {
	names, err := files(os.DirFS(dir))
	if err != nil {
		return upload{}, err
	}
	u, err := pick(os.DirFS(dir), names, "")
	archives := having(names, ".zip")
	if err == nil || len(archives) != 1 || len(having(names, ".c")) > 0 {
		return u, err
	}
	z, zipErr := zip.OpenReader(filepath.Join(dir, archives[0]))
	if zipErr != nil {
		return upload{}, fmt.Errorf("%w, and %s cannot be read as a zip file: %v", ErrUpload, archives[0], zipErr)
	}
	defer z.Close()
	if names, err = files(z); err != nil {
		return upload{}, err
	}
	return pick(z, names, archives[0]+"/")
}

// files lists the regular files, the ones nearest to the root first.
func files(in fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(in, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && name == ".":
			return err
		case err != nil:
			return nil // what cannot be read is not there
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "__MACOSX" || depth(name) > mostDepth):
			return fs.SkipDir
		case d.Type().IsRegular() && !strings.HasPrefix(d.Name(), "."):
			names = append(names, name)
		}
		if len(names) == mostFiles {
			return fs.SkipAll
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look at the upload: %w", err)
	}
	slices.SortStableFunc(names, func(a, b string) int { return depth(a) - depth(b) })
	return names, nil
}

func depth(name string) int { return strings.Count(name, "/") }

func having(names []string, suffix string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasSuffix(strings.ToLower(n), suffix) })
}

// pick decides which of the files it is: the one of that name nearest to the root.
func pick(in fs.FS, names []string, prefix string) (upload, error) {
	named := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return path.Base(n) != wanted })
	nearest := len(named) == 1 || len(named) > 1 && depth(named[0]) < depth(named[1])
	if len(named) == 0 {
		named = having(names, ".c")
		nearest = len(named) == 1
	}
	switch {
	case len(names) == 0:
		return upload{}, fmt.Errorf("%w: the upload has no files in it", ErrUpload)
	case len(named) == 0:
		return upload{}, fmt.Errorf("%w: the upload has %s", ErrUpload, list(names, prefix))
	case !nearest:
		return upload{}, fmt.Errorf("%w: which of %s it is, is not clear; upload one, as %s", ErrUpload, list(named, prefix), wanted)
	}
	f, err := in.Open(named[0])
	if err != nil {
		return upload{}, fmt.Errorf("look at the upload: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if err != nil {
		return upload{}, fmt.Errorf("%w: %s%s cannot be read: %v", ErrUpload, prefix, named[0], err)
	}
	if len(text) > mostBytes {
		return upload{}, fmt.Errorf("%w: %s%s is larger than %d KiB", ErrUpload, prefix, named[0], mostBytes>>10)
	}
	return upload{prefix + named[0], text}, nil
}

// list names some files.
func list(names []string, prefix string) string {
	const most = 10
	quoted := make([]string, 0, most)
	for _, n := range names[:min(most, len(names))] {
		quoted = append(quoted, fmt.Sprintf("%q", prefix+n))
	}
	if more := len(names) - most; more > 0 {
		quoted = append(quoted, fmt.Sprintf("%d more", more))
	}
	return strings.Join(quoted, ", ")
}
