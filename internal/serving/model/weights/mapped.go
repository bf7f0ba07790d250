package weights

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A mapped file must not be truncated before it is closed: the system kills a process that reads beyond the end.
type mapped struct{ data []byte }

func mapFile(path string) (*mapped, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if info.Size() == 0 {
		return &mapped{}, nil
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	return &mapped{data}, nil
}

// checkPointer returns an error for a pointer of Git LFS, which stands in for a large file.
func checkPointer(file []byte) error {
	if bytes.HasPrefix(file, []byte("version https://git-lfs.github.com/spec/")) {
		return damaged("it is a pointer of Git LFS; git lfs pull fetches the file")
	}
	return nil
}

func (m *mapped) close() error {
	if m.data == nil {
		return nil
	}
	data := m.data
	m.data = nil
	return unix.Munmap(data)
}
