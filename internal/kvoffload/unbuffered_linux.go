package kvoffload

import (
	"os"

	"golang.org/x/sys/unix"
)

// setUnbuffered says whether writes bypass the page cache.
func setUnbuffered(file *os.File, on bool) error {
	flags := 0
	if on {
		flags = unix.O_DIRECT
	}
	_, err := unix.FcntlInt(file.Fd(), unix.F_SETFL, flags)
	return err
}
