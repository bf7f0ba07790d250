package sandbox

import (
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Layers are the protections that confine a submission on this machine.
type Layers struct {
	Limits       bool // rlimits: memory, CPU time, files, processes
	UID          int  // that it runs as
	NoPrivileges bool // no_new_privs
	Landlock     int  // the kernel's version of Landlock; 0: none
	Seccomp      bool // system calls are limited to a list
}

// Active returns the layers that work on this machine. To find them, it starts a launcher that restricts itself and then
// reports which layers hold. The launcher tries what Landlock and seccomp forbid.
func Active() (Layers, error) {
	var l Layers
	var limits, privileges, seccomp int
	if err := ask("probe", &limits, &l.UID, &privileges, &l.Landlock, &seccomp); err != nil {
		return Layers{}, err
	}
	l.Limits, l.NoPrivileges, l.Seccomp = limits == 1, privileges == 1, seccomp == 1
	return l, nil
}

// Work returns the processor time that a fixed computation takes on this machine at the moment.
func Work() (took time.Duration, err error) {
	err = ask("work", (*int64)(&took)) // in nanoseconds
	return took, err
}

func ask(command string, numbers ...any) error {
	path, argv, err := Command(command)
	if err != nil {
		return err
	}
	out, err := (&exec.Cmd{Path: path, Args: argv}).Output()
	if err == nil {
		_, err = fmt.Sscan(string(out), numbers...)
	}
	if err != nil {
		return fmt.Errorf("sandbox: %s: %w: %q", command, err, out)
	}
	return nil
}

// String returns the layers as a line for the report. Missing layers are in capitals.
func (l Layers) String() string {
	var all []string
	layer := func(active bool, name, missing string) {
		if !active {
			name = missing
		}
		all = append(all, name)
	}
	layer(l.Limits, "rlimits", "NO RLIMITS")
	layer(l.UID != 0, fmt.Sprintf("uid %d", l.UID), "RUNS AS ROOT")
	layer(l.NoPrivileges, "no_new_privs", "NO no_new_privs")
	layer(l.Landlock > 0, fmt.Sprintf("Landlock ABI %d", l.Landlock), "NO LANDLOCK: a submission under Memcheck can read what its uid can")
	layer(l.Seccomp, "seccomp", "NO SECCOMP: a submission can call all of the kernel that its uid may")
	return strings.Join(all, ", ")
}
