// Package cputime limits the work of a process: its processor time without the time of page faults, relative to the
// current speed of the machine. The verdict does not change on a slow or busy machine.
package cputime

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Usage says how much of the machine a process has used so far.
type Usage struct {
	CPU    time.Duration // processor time of user and system
	Faults int64         // page faults
	Asleep bool          // it waits for something else than a processor or a disk
}

// usageOf returns the usage of the process pid. The process must be running, or must have ended without its parent
// having waited for it.
func usageOf(pid int) (Usage, error) {
	const tick = 10 * time.Millisecond
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 13 {
		return Usage{}, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		return n
	}
	u := Usage{
		CPU:    time.Duration(number(11)+number(12)) * tick,
		Faults: number(7) + number(9), Asleep: fields[0] == "S",
	}
	var precise unix.Timespec
	if unix.ClockGettime(int32(^pid)<<3|2, &precise) == nil { // clock_getcpuclockid(3)
		u.CPU = time.Duration(precise.Nano())
	}
	return u, nil
}

// Ended returns the usage of an ended process. It includes those children that the process has waited for.
func Ended(state *os.ProcessState) Usage {
	u := Usage{CPU: state.UserTime() + state.SystemTime()}
	if r, ok := state.SysUsage().(*syscall.Rusage); ok {
		u.Faults = int64(r.Minflt) + int64(r.Majflt)
	}
	return u
}

// since returns the usage since before.
func (u Usage) since(before Usage) Usage {
	u.CPU -= before.CPU
	u.Faults -= before.Faults
	return u
}

// faultTime is the processor time that is allowed for a page fault on a machine whose slowness is 1. It does not count
// as work.
const faultTime = 100 * time.Microsecond

// Work returns the processor time minus faultTime, multiplied by slowness, for each page fault, because the time of page
// faults differs most between machines. The number of page faults has a limit of its own. Work uses the sum of user and system time,
// because many kernels measure only the sum, and estimate its two parts.
func (u Usage) Work(slowness float64) time.Duration {
	return max(0, u.CPU-time.Duration(float64(u.Faults)*slowness*float64(faultTime)))
}
