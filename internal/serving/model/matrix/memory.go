package matrix

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page. Reading 256 MB in pages of 4 KB takes four times as long as in huge pages.
const hugePage = 2 << 20

// A Memory is zeroed memory outside the Go heap, in huge pages where the system has them.
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
