package parallel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// pin binds the calling thread to a processor.
func pin(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pinning a worker to processor %d: %w", cpu, err)
	}
	return nil
}
