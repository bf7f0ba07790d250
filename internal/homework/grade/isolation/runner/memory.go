package runner

import (
	"encoding/binary"
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
	faultSize         = 24
	fileSize          = PoolsSize + HeapSize + eventsSize + toldSize + faultSize
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

// A Fault says where a call has ended the process: struct fault. It lies where the process can write.
type Fault struct {
	Address uint64  // that it used; what no memory can have is near the bytes that memory is filled with, or half of all
	Events  []Event // of the call until then
}

// Fault returns where the process ended by SIGSEGV or SIGBUS, if it did.
func (m *memory) Fault() (f Fault, found bool) {
	text := m.bytes[fileSize-faultSize:]
	f.Address, f.Events = binary.NativeEndian.Uint64(text[8:]), m.events(binary.NativeEndian.Uint64(text[16:]))
	return f, binary.NativeEndian.Uint64(text) != 0
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
