package workload

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"sync"
)

// pipes has, by path, the contents of pipes and other files that can be read only once. They are kept because a
// trace is read twice, first to check it and then to run it.
var pipes = struct {
	sync.Mutex
	text map[string][]byte
}{text: map[string][]byte{}}

// open opens a file as os.Open does. Unlike os.Open, it returns the whole contents of a pipe each time.
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
		if text, err = readAtMost(f, maxPipe); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		pipes.text[path] = text
	}
	return io.NopCloser(bytes.NewReader(text)), nil
}

// maxPipe is the highest size, in bytes, of a file that can be read only once. open keeps its contents in memory.
const maxPipe = 1 << 30

// readAtMost reads a whole file as io.ReadAll does. It returns an error if the file has more than limit bytes.
func readAtMost(r io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, fmt.Errorf("%w: it is no regular file and has more than %d bytes: write it to one", ErrTrace, limit)
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
