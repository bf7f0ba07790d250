package class

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Submission is the work of one student.
type Submission struct {
	Name string // unique in the class
	File string
	Why  string // why it is not graded; empty if it is graded
}

// ErrEmpty means that a folder contains nothing to grade.
var ErrEmpty = errors.New("there is neither a .c file nor a student's folder in it")

// Find lists submissions. A path is a submission, or a folder whose entries are submissions, sorted by name. A folder
// with llm_memory.c and without visible folders is one submission itself. Find ignores the metadata of Gradescope's
// export. It also ignores entries whose names begin with a dot, except folders with a submission.
func Find(paths []string) ([]Submission, error) {
	var all []Submission
	names := map[string]bool{}
	add := func(s Submission) {
		unique := s.Name
		for n := 2; names[unique]; n++ {
			unique = s.Name + "-" + strconv.Itoa(n)
		}
		names[unique] = true
		s.Name = unique
		all = append(all, s)
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			name := strings.TrimSuffix(filepath.Base(path), ".c")
			if path, err = filepath.EvalSymlinks(path); err != nil { // a link on the command line is followed
				return nil, err
			}
			add(Submission{Name: name, File: path, Why: unreadable(path)})
			continue
		}
		found, err := folder(path)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			add(s)
		}
	}
	return all, nil
}

const exportMetadata = "submission_metadata.yml" // of Gradescope's export

func folder(path string) ([]Submission, error) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var all []Submission
	folders, candidates, own := false, false, filepath.Join(path, Wanted)
	for _, e := range entries {
		hidden := strings.HasPrefix(e.Name(), ".")
		if e.Name() == exportMetadata || hidden && !hidesOne(filepath.Join(path, e.Name())) {
			continue
		}
		s, isFolder := entry(filepath.Join(path, e.Name()))
		folders = folders || isFolder && !hidden // an editor may keep old versions in a hidden one
		candidates = candidates || isFolder || isC(s.File)
		all = append(all, s)
	}
	if !candidates {
		return nil, fmt.Errorf("%s: %w", path, ErrEmpty)
	}
	if info, err := os.Lstat(own); err == nil && info.Mode().IsRegular() && !folders {
		if whole, err := filepath.Abs(path); err == nil {
			path = whole
		}
		return []Submission{{Name: filepath.Base(path), File: own, Why: unreadable(own)}}, nil
	}
	return all, nil
}

// hidesOne reports whether a path is a folder, other than .git, that contains a submission.
func hidesOne(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir() && filepath.Base(path) != ".git" && inFolder(Submission{File: path}).Why == ""
}

func isC(name string) bool { return strings.EqualFold(filepath.Ext(name), ".c") }

// entry returns an entry of a class folder. Links are followed.
func entry(path string) (s Submission, isFolder bool) {
	s = Submission{Name: filepath.Base(path), File: path}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.Why = "it is a link that leads nowhere"
	case err != nil: // the grader will report it
	case info.IsDir() && strings.HasPrefix(s.Name, "."):
		s.Why = "its name begins with a dot, which hides it: rename the folder if it is a student's, else remove it"
		return s, true
	case info.IsDir():
		return inFolder(s), true
	case !info.Mode().IsRegular():
		kind := "device"
		switch info.Mode().Type() {
		case fs.ModeNamedPipe:
			kind = "pipe"
		case fs.ModeSocket:
			kind = "socket"
		}
		s.Why = "it is not a file, but a " + kind
	case isArchive(path):
		s.Why = "it is an archive: unpack it to a folder with the student's name"
	case !isC(path):
		s.Why = "it is not a C file: its name does not end in .c"
	default:
		s.Why = unreadable(path)
	}
	if isC(path) {
		s.Name = s.Name[:len(s.Name)-len(".c")]
	}
	return s, false
}

func inFolder(s Submission) Submission {
	dir := s.File
	s.File = filepath.Join(dir, Wanted)
	if _, err := os.Lstat(s.File); err == nil {
		s.Why = unreadable(s.File)
		return s
	}
	name, err := findFile(dir)
	switch {
	case errors.Is(err, ErrUpload):
		if u, zipErr := ReadUpload(dir); zipErr == nil { // as on Gradescope
			s.File = filepath.Join(dir, filepath.FromSlash(u.Name))
			return s
		}
		s.Why = err.Error()
	case err == nil:
		s.File = filepath.Join(dir, filepath.FromSlash(name))
		s.Why = unreadable(s.File)
	}
	return s
}

var beginnings = []struct{ bytes, kind string }{
	{"\x7fELF", "a compiled program"}, {"!<arch>", "a compiled library"}, {"PK\x03\x04", "a zip archive or an office document"},
	{"%PDF", "a PDF"}, {"\x1f\x8b", "a gzip archive"}, {"7z\xbc\xaf", "an archive"}, {"Rar!", "an archive"},
	{"\x89PNG", "a picture"}, {"\xff\xd8\xff", "a picture"}, {"\xff\xfe", "text in UTF-16"}, {"\xfe\xff", "text in UTF-16"},
}

// unreadable returns why a file cannot be C source, or "" if it may be. If the file cannot be opened, unreadable
// returns "", because the grader reports this.
func unreadable(path string) string {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 512)
	n, _ := io.ReadFull(f, head)
	if strings.TrimSpace(string(head[:n])) == "" && int64(n) == info.Size() {
		return "it is empty"
	}
	for _, b := range beginnings {
		if strings.HasPrefix(string(head[:n]), b.bytes) {
			return "it is not C source, but " + b.kind
		}
	}
	if strings.Count(string(head[:n]), "\x00") > n/8 {
		return "it is a binary file, not C source"
	}
	return ""
}
