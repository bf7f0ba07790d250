package rules

import "golang.org/x/sys/unix"

// A reader that does not come to an end has a fifth of its processor time here, which is
// many times what a submission takes.
func init() {
	for i := range limits {
		if limits[i].resource == unix.RLIMIT_CPU {
			limits[i].most = 2
		}
	}
}
