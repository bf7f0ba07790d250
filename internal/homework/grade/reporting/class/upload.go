package class

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

// Wanted is the handout's name of the file.
const Wanted = "llm_memory.c"

// ErrUpload means that an upload has no file to grade. The text of an error that wraps it is written for the student.
var ErrUpload = errors.New("there is no " + Wanted + " to grade")

const (
	maxBytes = 1 << 20 // size of the file
	maxFiles = 2000
	maxDepth = 6
)

// An Upload is the file of an upload that is graded.
type Upload struct {
	Name string // name in the upload
	Text []byte
}

// findFile returns the name of the file to grade in a folder. It does not look into archives.
func findFile(dir string) (string, error) {
	names, err := files(os.DirFS(dir))
	if err != nil {
		return "", err
	}
	name, err := pick(names, "")
	if archives := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !isArchive(n) }); err != nil && len(archives) > 0 {
		err = fmt.Errorf("%w: unpack the archive; only one zip file alone is read", err)
	}
	return name, err
}

func isArchive(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(archives, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}

var archives = strings.Fields(".zip .tar .gz .tgz .bz2 .xz .zst .7z .rar")

// ReadUpload reads the file to grade from a folder or, if the folder has one zip and no .c file, from this zip. It
// chooses llm_memory.c in any subfolder, otherwise the only .c file. It follows no links, because the grader may read
// files that a student may not.
func ReadUpload(dir string) (Upload, error) {
	names, err := files(os.DirFS(dir))
	if err != nil {
		return Upload{}, err
	}
	f, err := readFrom(os.DirFS(dir), names, "")
	zips := having(names, ".zip")
	if err == nil || len(zips) != 1 || len(having(names, ".c")) > 0 {
		return f, err
	}
	z, zipErr := zip.OpenReader(filepath.Join(dir, zips[0]))
	if zipErr != nil {
		return Upload{}, fmt.Errorf("%w, and %s cannot be read as a zip file: %v", ErrUpload, zips[0], zipErr)
	}
	defer z.Close()
	if names, err = files(z); err != nil {
		return Upload{}, err
	}
	return readFrom(z, names, zips[0]+"/")
}

func files(fsys fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil && name == ".":
			return err
		case err != nil:
			return nil // unreadable entries are left out
		case d.IsDir() && name != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "__MACOSX" || depth(name) > maxDepth):
			return fs.SkipDir
		case d.Type().IsRegular() && !strings.HasPrefix(d.Name(), "."):
			names = append(names, name)
		}
		if len(names) == maxFiles {
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

// pick chooses the file to grade: the llm_memory.c nearest to the root or, if no file has this name, the only .c file.
// It returns an error if the choice is not clear. If the names are from an archive, prefix is the name of the archive
// and a slash. Error messages have prefix before each name.
func pick(names []string, prefix string) (string, error) {
	named := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return path.Base(n) != Wanted })
	nearest := len(named) == 1 || len(named) > 1 && depth(named[0]) < depth(named[1])
	if len(named) == 0 {
		named = having(names, ".c")
		nearest = len(named) == 1
	}
	switch {
	case len(names) == 0:
		return "", fmt.Errorf("%w: the upload has no files in it", ErrUpload)
	case len(named) == 0:
		return "", fmt.Errorf("%w: the upload has %s", ErrUpload, list(names, prefix))
	case !nearest:
		return "", fmt.Errorf("%w: which of %s it is, is not clear; upload one, as %s", ErrUpload, list(named, prefix), Wanted)
	}
	return named[0], nil
}

func readFrom(fsys fs.FS, names []string, prefix string) (Upload, error) {
	name, err := pick(names, prefix)
	if err != nil {
		return Upload{}, err
	}
	f, err := fsys.Open(name)
	if err != nil {
		return Upload{}, fmt.Errorf("look at the upload: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return Upload{}, fmt.Errorf("%w: %s%s cannot be read: %v", ErrUpload, prefix, name, err)
	}
	if len(text) > maxBytes {
		return Upload{}, fmt.Errorf("%w: %s%s is larger than %d KiB", ErrUpload, prefix, name, maxBytes>>10)
	}
	return Upload{prefix + name, text}, nil
}

func list(names []string, prefix string) string {
	const maxNames = 10
	quoted := make([]string, 0, maxNames)
	for _, n := range names[:min(maxNames, len(names))] {
		quoted = append(quoted, fmt.Sprintf("%q", prefix+n))
	}
	if omitted := len(names) - maxNames; omitted > 0 {
		quoted = append(quoted, fmt.Sprintf("%d more", omitted))
	}
	return strings.Join(quoted, ", ")
}
