package jobs

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Replace replaces a file atomically: if the process is killed, the file has either the old or the new contents.
// Replace follows links to files that exist, and writes directly to a device or a pipe.
func Replace(path string, text []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(path, text, 0o644)
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return named(path, err)
	}
	_, err = temporary.Write(text)
	err = errors.Join(err, temporary.Chmod(0o644), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
		return named(path, err)
	}
	return nil
}

// named replaces the temporary file's path in an error with path.
func named(path string, err error) error {
	var inner *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &inner):
		return &os.PathError{Op: "write", Path: path, Err: inner.Err}
	case errors.As(err, &link):
		return &os.PathError{Op: "write", Path: path, Err: link.Err}
	}
	return err
}

// CheckFolder returns an error if no files can be written to a folder. To find out, it creates the folder and a file,
// and then removes both if they are new. Parents of the folder that it has created stay.
func CheckFolder(dir string) error {
	_, before := os.Stat(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-")
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if before != nil {
		_ = os.Remove(dir)
	}
	if err != nil {
		return named(dir, err)
	}
	return nil
}

// Program returns the SHA-256 of this program's executable file, which identifies the build.
func Program() ([]byte, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return Digest(path)
}

// Digest returns the SHA-256 of a file.
func Digest(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}
