package jobs

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Replace writes a file as a whole: all of it or, if the machine stops, nothing. What a link
// points to is replaced, and a device or a pipe is written to.
func Replace(path string, text []byte) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return writeTo(path, text)
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

func writeTo(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// named returns an error of a temporary file in the name of what it was to become.
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

// CheckFolder returns an error if files cannot be written to a folder that exists or can be made. It
// leaves nothing behind.
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

// Program returns the SHA-256 of this program: what another build did need not be
// what this one does.
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
