package kvoffload

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"unsafe"
)

// An unbuffered writes files past the page cache. The cache would take processor time from a step: for its
// copy, its pages, and writing them back.
type unbuffered struct {
	memory sync.Pool // of *[]byte
}

// alignment is that of memory, offsets and lengths of unbuffered writes. No disk's sectors are larger.
const alignment = 4096

// write writes header and data to an empty file, through the page cache if the file system has no other way.
func (u *unbuffered) write(file *os.File, header, data []byte) error {
	size := len(header) + len(data)
	whole := u.get((size + alignment - 1) &^ (alignment - 1))
	defer u.memory.Put(&whole)
	copy(whole[copy(whole, header):], data)
	if setUnbuffered(file, true) == nil {
		_, err := file.Write(whole)
		if err == nil {
			return file.Truncate(int64(size))
		}
		if !errors.Is(err, syscall.EINVAL) {
			return err
		}
		if err := setUnbuffered(file, false); err != nil {
			return err
		}
	}
	_, err := file.WriteAt(whole[:size], 0)
	return err
}

// get returns n bytes of aligned memory.
func (u *unbuffered) get(n int) []byte {
	if kept, _ := u.memory.Get().(*[]byte); kept != nil && len(*kept) == n {
		return *kept
	}
	b := make([]byte, n+alignment)
	from := -int(uintptr(unsafe.Pointer(&b[0]))) & (alignment - 1)
	return b[from : from+n]
}
