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
	if len(os.Args) < 4 || os.Args[0] != word {
		return
	}
	runtime.LockOSThread() // the rights taken away are those of a thread, which the exec then leaves alone
	if err := enter(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(Failed)
	}
	err := syscall.Exec(os.Args[2], os.Args[2:], os.Environ())
	fmt.Fprintln(os.Stderr, "sandbox: execute the submission:", err)
	os.Exit(Failed)
}

// Failed is the exit status of a launcher that could not do its work.
const Failed = 125

// Command is the program and the arguments that run a statically linked program
// shut in: of the file system it can execute itself, and of the kernel's calls
// make those that a runner needs.
func Command(program string, args ...string) (path string, argv []string, err error) {
	return command("", program, args)
}

// Watched is the same for a program that has to read files and to write into one
// folder, as Valgrind has.
func Watched(folder, program string, args ...string) (path string, argv []string, err error) {
	return command(folder, program, args)
}

func command(folder, program string, args []string) (path string, argv []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("sandbox: %w", err)
	}
	return self, append([]string{word, folder, program}, args...), nil
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
	{unix.RLIMIT_FSIZE, 0},
	{unix.RLIMIT_NOFILE, 16},
	{unix.RLIMIT_CPU, 20},
	{unix.RLIMIT_CORE, 0},
	{unix.RLIMIT_STACK, 8 << 20},
}

// A watched program may use more of the first ones: Valgrind shadows memory and
// writes a report.
var watchedLimits = []uint64{16 << 30, 64 << 20, 2048, 60}

// enter takes every right away that this kernel can take. With a folder, the
// program is a watched one.
func enter(folder, program string) error {
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
		if err := landlock(folder, program); err != nil {
			return err
		}
	}
	for i, l := range limits {
		if folder != "" && i < len(watchedLimits) {
			l.most = watchedLimits[i]
		}
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.most, Max: l.most}); err != nil {
			return fmt.Errorf("limit %d: %w", l.resource, err)
		}
	}
	if hasSeccomp {
		return seccomp(folder != "")
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
