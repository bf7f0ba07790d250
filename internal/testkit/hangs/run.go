// Package hangs runs programs in tests and kills those that hang. It measures processor time, so that a test does not
// fail because the machine is busy.
package hangs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// A program hangs if the processes of its group together use no processor time for maxIdle, or if they have used more
// than maxBusy of processor time.
const (
	maxIdle = time.Minute
	maxBusy = 15 * time.Minute
)

// Err is wrapped if a program was killed because it hangs.
var Err = errors.New("it hangs")

// Run does the same as cmd.Run for a program that may hang. It runs the program in a new process group, and kills the
// group if the program hangs.
func Run(cmd *exec.Cmd) error { return run(cmd, maxIdle, maxBusy) }

func run(cmd *exec.Cmd, maxIdle, maxBusy time.Duration) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.WaitDelay = time.Second // for pipes that other processes keep open
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tick := time.NewTicker(maxIdle / 10) // reading all processes takes milliseconds
	defer tick.Stop()
	used, since := time.Duration(0), time.Now()
	for {
		select {
		case err := <-ended:
			return err
		case now := <-tick.C:
			if u := processorTime(cmd.Process.Pid); u != used {
				used, since = u, now
			}
			if now.Sub(since) > maxIdle || used > maxBusy {
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
				return fmt.Errorf("%w: after %v of processor time: %w", Err, used, <-ended)
			}
		}
	}
}

// processorTime includes the children of the group's processes that have ended.
func processorTime(group int) time.Duration {
	const tick = 10 * time.Millisecond // USER_HZ is 100 wherever Go runs
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	sum := 0
	for _, name := range stats {
		stat, _ := os.ReadFile(name)
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // a name may have blanks
		if len(fields) < 15 || string(fields[2]) != strconv.Itoa(group) {
			continue
		}
		for _, f := range fields[11:15] { // utime, stime, cutime, cstime
			n, _ := strconv.Atoi(string(f))
			sum += n
		}
	}
	return time.Duration(sum) * tick
}
