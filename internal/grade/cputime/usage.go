// Package cputime says when a process has had its time. The answer depends on the
// work that the process has done, and not on how fast or how busy the machine is.
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

// A Usage is what a process has used so far.
type Usage struct {
	CPU    time.Duration // processor time of user and system
	Faults int64         // page faults
	Asleep bool          // it waits, and for no processor and no disk
}

// Of is what a process has used, whose end nobody has waited for yet.
func Of(pid int) (Usage, error) {
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

// Ended is what a process has used that has ended, with its children that have.
func Ended(state *os.ProcessState) Usage {
	u := Usage{CPU: state.UserTime() + state.SystemTime()}
	if r, ok := state.SysUsage().(*syscall.Rusage); ok {
		u.Faults = int64(r.Minflt) + int64(r.Majflt)
	}
	return u
}

// since is what was used after an earlier moment.
func (u Usage) since(before Usage) Usage {
	u.CPU -= before.CPU
	u.Faults -= before.Faults
	return u
}

// faultTime is what a page fault may take on a machine whose slowness is 1: ten times what
// it takes on most virtual ones.
const faultTime = 100 * time.Microsecond

// Work is the processor time that counts: without that of page faults, which differs most
// between machines. Their number is limited in place of it. Which part of the time is the
// kernel's is not asked, because many kernels only guess it.
func (u Usage) Work(slowness float64) time.Duration {
	return max(0, u.CPU-time.Duration(float64(u.Faults)*slowness*float64(faultTime)))
}
