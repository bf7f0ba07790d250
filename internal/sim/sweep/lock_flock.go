//go:build unix && !solaris && !aix

package sweep

import (
	"errors"
	"os"
	"syscall"
)

// lock locks a file until it is closed or the process ends, however it ends.
// It does not wait: the error is errBusy if another process is in the way.
func lock(f *os.File, exclusive bool) error {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}
