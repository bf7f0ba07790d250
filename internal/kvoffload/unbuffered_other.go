//go:build !linux

package kvoffload

import (
	"errors"
	"os"
)

// setUnbuffered is not implemented here.
func setUnbuffered(*os.File, bool) error { return errors.ErrUnsupported }
