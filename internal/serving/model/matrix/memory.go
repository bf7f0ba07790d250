package matrix

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page. Reading 256 MB in pages of 4 KB takes four times as long as in huge pages.
const hugePage = 2 << 20

// A Memory is zeroed memory outside the Go heap. It has huge pages if the system has them.
type Memory struct{ mapped []byte }

// Allocate maps n bytes.
func Allocate(n int) (*Memory, error) {
	size := n
	if n >= hugePage {
		size = (n + hugePage - 1) / hugePage * hugePage
	}
	mapped, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("%d bytes of memory: %w", n, err)
	}
	if n >= hugePage {
		// If this fails, the memory is only slower.
		_ = unix.Madvise(mapped, unix.MADV_HUGEPAGE)
	}
	return &Memory{mapped[:n]}, nil
}

// Bytes returns the memory, valid until Close.
func (m *Memory) Bytes() []byte { return m.mapped }

// Close releases the memory.
func (m *Memory) Close() error {
	if m.mapped == nil {
		return nil
	}
	mapped := m.mapped[:cap(m.mapped)]
	m.mapped = nil
	return unix.Munmap(mapped)
}

// An Arena allocates the memory of matrices from huge pages that the matrices share. If each matrix had memory of its
// own, a matrix smaller than a huge page would be in small pages. The zero Arena is ready for use. One goroutine may
// use it at a time.
type Arena struct {
	all  []*Memory
	free []byte
}

// arenaBytes is the number of bytes that an Arena maps at a time. Pages that are not used take no memory.
const arenaBytes = 64 << 20

// line is the size of a cache line. All memory from an Arena is aligned to it.
const line = 64

// take returns n zeroed bytes, valid until Close.
func (a *Arena) take(n int) ([]byte, error) {
	if n > len(a.free) {
		memory, err := Allocate(max(n, arenaBytes))
		if err != nil {
			return nil, err
		}
		a.all = append(a.all, memory)
		a.free = memory.Bytes()
	}
	piece := a.free[:n:n]
	a.free = a.free[min(len(a.free), (n+line-1)/line*line):]
	return piece, nil
}

// Close releases the memory of all matrices.
func (a *Arena) Close() error {
	var err error
	for _, m := range a.all {
		err = errors.Join(err, m.Close())
	}
	*a = Arena{}
	return err
}
