package runner

import (
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The parts of the file that the grader and the process share, in the order of grader/process/runner.c: pools, heap,
// events, refused system calls, fault. Pools and Heap are the addresses of the first two parts in the process.
const (
	Pools        uint64 = 0x2000_0000_0000
	PoolsSize           = 64 << 20
	Heap         uint64 = 0x2100_0000_0000
	HeapSize            = 256 << 20
	maxEvents           = 1 << 21
	eventsSize          = maxEvents * int(unsafe.Sizeof(Event{}))
	maxReported         = 15 // refused calls
	reportedSize        = 4 * (1 + maxReported)
	faultSize           = 24
	fileSize            = PoolsSize + HeapSize + eventsSize + reportedSize + faultSize
)

// memory is the file, mapped in the grader.
type memory struct {
	file  *os.File
	bytes []byte

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

// empty releases the pages of the file. It is called when a process died by SIGKILL, probably because the machine
// lacked memory. The pages also count as the grader's memory, so the kernel would kill the grader next.
func (m *memory) empty() {
	_ = unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(fileSize))
}

func (m *memory) close() {
	_ = unix.Munmap(m.bytes)
	_ = m.file.Close()
}

func (m *memory) events(n uint64) []Event {
	first := (*Event)(unsafe.Pointer(&m.bytes[PoolsSize+HeapSize]))
	return unsafe.Slice(first, maxEvents)[:min(n, maxEvents)]
}

// A Fault describes the memory access that ended the process in a call (struct fault). The process can write it, so it
// is not reliable.
type Fault struct {
	Address uint64  // address that the call used, as far as it is known (grader/process/fault.c)
	Events  []Event // of the call so far
}

// Fault returns the Fault of a process that ended by SIGSEGV or SIGBUS. found is false if the process recorded none.
func (m *memory) Fault() (f Fault, found bool) {
	text := m.bytes[fileSize-faultSize:]
	f.Address, f.Events = binary.NativeEndian.Uint64(text[8:]), m.events(binary.NativeEndian.Uint64(text[16:]))
	return f, binary.NativeEndian.Uint64(text) != 0
}

// At returns size bytes at an address of the process, or nil if any of them is outside the pools and the heap. The
// bytes are shared with the process.
func (m *memory) At(address, size uint64) []byte {
	if p := address - m.aliasTo; p < m.aliasSize && size <= m.aliasSize-p {
		address = m.aliasFrom + p
	}
	offset, regionSize := address-Pools, uint64(PoolsSize)
	if address >= Heap {
		offset, regionSize = address-Heap, HeapSize
	} else if address < Pools {
		return nil
	}
	if offset > regionSize || size > regionSize-offset {
		return nil
	}
	if address >= Heap {
		offset += PoolsSize
	}
	return m.bytes[offset : offset+size : offset+size]
}
