package kvoffload

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// writeUnbuffered writes the first size bytes of pages to an empty file. It bypasses the page cache if the file
// system supports that. Copying to the cache, allocating its pages and writing them back would take processor time
// from a step.
func writeUnbuffered(file *os.File, pages []byte, size int) error {
	if setUnbuffered(file, true) == nil {
		_, err := file.Write(pages)
		if err == nil {
			return file.Truncate(int64(size))
		}
		if !errors.Is(err, unix.EINVAL) {
			return err
		}
		if err := setUnbuffered(file, false); err != nil {
			return err
		}
	}
	_, err := file.WriteAt(pages[:size], 0)
	return err
}

func setUnbuffered(file *os.File, unbuffered bool) error {
	flags := 0
	if unbuffered {
		flags = unix.O_DIRECT
	}
	_, err := unix.FcntlInt(file.Fd(), unix.F_SETFL, flags)
	return err
}
