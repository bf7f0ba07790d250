package grade

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"llmmemory/grader"
)

// errNoSource means that there is no gradable file. The text of an error that wraps it is written for the student.
var errNoSource = errors.New("is not run")

const maxSource = 1 << 20 // more than the gate allows

// ReadSource reads a submission. path must be a regular file, or a file in a zip (hw.zip/llm_memory.c). A link is
// refused because it could lead to another user's file, and a pipe because it could have no end.
func ReadSource(path string) ([]byte, error) {
	none := func(reason string) ([]byte, error) {
		return nil, fmt.Errorf("%s %w: %s", filepath.Base(path), errNoSource, reason)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return none("there is no such file")
	case errors.Is(err, syscall.ENOTDIR):
		source, err := inZip(path)
		if err != nil {
			return none(err.Error())
		}
		return source, nil
	case errors.Is(err, syscall.ELOOP):
		return none("it is a link, not a file")
	case err != nil:
		return nil, fmt.Errorf("read the submission: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		return none("it is not a file")
	}
	var source []byte
	if err == nil {
		source, err = io.ReadAll(io.LimitReader(f, maxSource))
	}
	if err != nil {
		return nil, fmt.Errorf("read the submission: %w", err)
	}
	return source, nil
}

func inZip(path string) ([]byte, error) {
	archive := filepath.Dir(path)
	info, err := os.Lstat(archive)
	for errors.Is(err, syscall.ENOTDIR) {
		archive = filepath.Dir(archive)
		info, err = os.Lstat(archive)
	}
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fs.ErrInvalid)
	}
	z, err := zip.OpenReader(archive)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	name, err := filepath.Rel(archive, path)
	if err != nil {
		return nil, err
	}
	f, err := z.Open(filepath.ToSlash(name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxSource))
}

func otherHeader(path string) bool {
	text, err := ReadSource(filepath.Join(filepath.Dir(path), "llm_memory.h"))
	return err == nil && !slices.EqualFunc(bytes.Fields(text), bytes.Fields(grader.Header), bytes.Equal)
}

func sameText(source []byte) string {
	hash := sha256.Sum256(bytes.Join(bytes.Fields(source), nil))
	return hex.EncodeToString(hash[:16])
}
