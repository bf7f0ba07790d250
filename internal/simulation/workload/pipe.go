package workload

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"sync"
)

// pipes keeps the contents of files that can be read only once. This is needed because a trace is read twice: it is
// checked before it is run.
var pipes = struct {
	sync.Mutex
	text map[string][]byte
}{text: map[string][]byte{}}

// open opens a file as os.Open does. In contrast to os.Open, it can open a pipe repeatedly.
func open(path string) (io.ReadCloser, error) {
	if path != "-" {
		info, err := os.Stat(path)
		if err != nil || info.Mode().IsRegular() || info.IsDir() {
			return os.Open(path)
		}
	}
	pipes.Lock()
	defer pipes.Unlock()
	text, ok := pipes.text[path]
	if !ok {
		f := os.Stdin
		if path != "-" {
			var err error
			if f, err = os.Open(path); err != nil {
				return nil, err
			}
			defer f.Close()
		}
		var err error
		if text, err = readAtMost(f, mostPiped); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		pipes.text[path] = text
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

// mostPiped limits the size of a file that can be read only once.
const mostPiped = 1 << 30

// readAtMost reads all of a file as io.ReadAll does. It returns an error if the file has more than most bytes.
func readAtMost(r io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(text)) > most {
		return nil, fmt.Errorf("%w: it is no regular file and has more than %d bytes: write it to one", ErrTrace, most)
	}
	return text, err
}

// Digest returns the SHA-256 of a trace's file.
func Digest(path string) ([]byte, error) {
	f, err := open(path)
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
