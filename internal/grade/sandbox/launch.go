package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// word makes the grader's program a launcher. No submission is called so.
const word = "llmgrade-launches"

// Launch has to be the first thing that main does. In a process that Command
// started it never returns.
func Launch() {
	if len(os.Args) < 3 || os.Args[0] != word {
		return
	}
	runtime.LockOSThread() // the rights taken away are those of a thread, which the exec then leaves alone
	if err := enter(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(Failed)
	}
	err := syscall.Exec(os.Args[1], os.Args[1:], []string{})
	fmt.Fprintln(os.Stderr, "sandbox: execute the submission:", err)
	os.Exit(Failed)
}

// Failed is the exit status of a launcher that could not do its work.
const Failed = 125

// Command is the program and the arguments that run program shut in.
func Command(program string, args ...string) (path string, argv []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("sandbox: %w", err)
	}
	return self, append([]string{word, program}, args...), nil
}

// Nobody is whom a submission runs as when the grader is root.
const Nobody = 65534

// What a submission may use. Its memory is the grader's file of 1 GiB and
// what grader/runner.c keeps for itself.
var limits = []struct {
	resource int
	most     uint64
}{
	{unix.RLIMIT_AS, 3 << 30},
	{unix.RLIMIT_CPU, 20},
	{unix.RLIMIT_FSIZE, 0},
	{unix.RLIMIT_CORE, 0},
	{unix.RLIMIT_NOFILE, 16},
	{unix.RLIMIT_STACK, 8 << 20},
}

// enter takes every right away that this kernel can take.
func enter(program string) error {
	if os.Getuid() == 0 {
		if err := becomeNobody(); err != nil {
			return err
		}
	}
	// Again, because a change of the uid forgets it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("end with the grader: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if landlockABI() > 0 {
		if err := landlock(program); err != nil {
			return err
		}
	}
	for _, l := range limits {
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return fmt.Errorf("limit %d: %w", l.resource, err)
		}
	}
	if hasSeccomp {
		return seccomp()
	}
	return nil
}

func becomeNobody() error {
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("another uid: %w", err)
	}
	if err := syscall.Setresgid(Nobody, Nobody, Nobody); err != nil {
		return fmt.Errorf("another uid: %w", err)
	}
	if err := syscall.Setresuid(Nobody, Nobody, Nobody); err != nil {
		return fmt.Errorf("another uid: %w", err)
	}
	return nil
}

// Layers says what is active here, for the report.
func Layers() string {
	layers := []string{"rlimits", "no_new_privs"}
	if os.Getuid() == 0 {
		layers = append(layers, fmt.Sprintf("uid %d", Nobody))
	}
	if abi := landlockABI(); abi > 0 {
		layers = append(layers, fmt.Sprintf("Landlock ABI %d", abi))
	} else {
		layers = append(layers, "no Landlock")
	}
	if hasSeccomp {
		layers = append(layers, "seccomp")
	} else {
		layers = append(layers, "no seccomp")
	}
	return strings.Join(layers, ", ")
}
