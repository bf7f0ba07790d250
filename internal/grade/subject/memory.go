package subject

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Where the process has the file, as in grader/runner.c: the pools
// first, the heap behind them.
const (
	Pools     uint64 = 0x2000_0000_0000
	PoolsSize        = 64 << 20
	Heap      uint64 = 0x2100_0000_0000
	HeapSize         = 1 << 30
)

// memory is the file, mapped here too, at an address of its own.
type memory struct {
	file  *os.File
	bytes []byte // pools, then heap
}

func newMemory() (*memory, error) {
	fd, err := unix.MemfdCreate("llmgrade", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory shared with the submission: %w", err)
	}
	m := &memory{file: os.NewFile(uintptr(fd), "llmgrade memory")}
	if err = m.file.Truncate(PoolsSize + HeapSize); err == nil {
		m.bytes, err = unix.Mmap(fd, 0, PoolsSize+HeapSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	}
	if err != nil {
		_ = m.file.Close()
		return nil, fmt.Errorf("memory shared with the submission: %w", err)
	}
	return m, nil
}

func (m *memory) close() {
	_ = unix.Munmap(m.bytes)
	_ = m.file.Close()
}

// at views size bytes at an address of the process; nil if any lies outside the
// file.
func (m *memory) at(address, size uint64) []byte {
	offset, room := address-Pools, uint64(PoolsSize)
	if address >= Heap {
		offset, room = address-Heap, HeapSize
	} else if address < Pools {
		return nil
	}
	if offset > room || size > room-offset {
		return nil
	}
	if address >= Heap {
		offset += PoolsSize
	}
	return m.bytes[offset : offset+size : offset+size]
}
