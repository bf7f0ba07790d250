package runner

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where the process has the file, as in grader/process/runner.c: the pools first, the
// heap after them, then the events.
const (
	Pools      uint64 = 0x2000_0000_0000
	PoolsSize         = 64 << 20
	Heap       uint64 = 0x2100_0000_0000
	HeapSize          = 256 << 20
	mostEvents        = 1 << 21
	eventsSize        = mostEvents * int(unsafe.Sizeof(Event{}))
	mostTold          = 15 // calls that were refused
	toldSize          = 4 * (1 + mostTold)
	fileSize          = PoolsSize + HeapSize + eventsSize + toldSize
)

// memory is the file, mapped here too, at an address of its own.
type memory struct {
	file  *os.File
	bytes []byte // pools, heap, events

	aliasFrom, aliasTo, aliasSize uint64 // see Process.Alias
}

func newMemory() (*memory, error) {
	fd, err := unix.MemfdCreate("llmgrade", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memory shared with the submission: %w", err)
	}
	m := &memory{file: os.NewFile(uintptr(fd), "llmgrade memory")}
	if err = m.file.Truncate(int64(fileSize)); err == nil {
		// A submission that made it shorter would end the grader (SIGBUS).
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		m.bytes, err = unix.Mmap(fd, 0, fileSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	}
	if err != nil {
		_ = m.file.Close()
		return nil, fmt.Errorf("memory shared with the submission: %w", err)
	}
	return m, nil
}

// empty gives the pages back, whose contents are lost. A process that died by SIGKILL was most
// likely killed for memory. The pages count for the grader as well: while they fill its control group, the
// kernel would kill the grader when it takes its next page.
func (m *memory) empty() {
	_ = unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(fileSize))
}

func (m *memory) close() {
	_ = unix.Munmap(m.bytes)
	_ = m.file.Close()
}

// events views the first n events of the heap in the last call. The process can
// write there at any time: look at each once.
func (m *memory) events(n uint64) []Event {
	first := (*Event)(unsafe.Pointer(&m.bytes[PoolsSize+HeapSize]))
	return unsafe.Slice(first, mostEvents)[:min(n, mostEvents)]
}

// at views size bytes at an address of the process; nil if any lies outside the
// pools and the heap.
func (m *memory) at(address, size uint64) []byte {
	if p := address - m.aliasTo; p < m.aliasSize && size <= m.aliasSize-p {
		address = m.aliasFrom + p
	}
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
