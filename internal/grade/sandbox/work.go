package sandbox

import (
	"fmt"
	"os/exec"
	"time"
)

// Work is the processor time that a known piece of work takes here and now.
func Work() (time.Duration, error) {
	path, argv, err := Command("work")
	if err != nil {
		return 0, err
	}
	out, err := (&exec.Cmd{Path: path, Args: argv}).Output()
	if err != nil {
		return 0, fmt.Errorf("sandbox: work: %w", err)
	}
	var nanoseconds int64
	if _, err := fmt.Sscan(string(out), &nanoseconds); err != nil {
		return 0, fmt.Errorf("sandbox: work: %w: %q", err, out)
	}
	return time.Duration(nanoseconds), nil
}
