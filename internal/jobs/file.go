package jobs

import (
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Replace writes a file as a whole: all of it or, if the machine stops, nothing.
func Replace(path string, text []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	_, err = temporary.Write(text)
	err = errors.Join(err, temporary.Chmod(0o644), temporary.Close())
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}

// Program is the SHA-256 of this program: what another build did need not be
// what this one does.
func Program() ([]byte, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return Digest(path)
}

// Digest is the SHA-256 of a file.
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
