// Package sandbox restricts a submission before it starts, without root, namespaces or a daemon: a launcher
// (grader/process/launch.c) gives up its own rights and then executes the submission. Each grader compiles the launcher
// once, without code of a submission.
//
// A layer that the kernel lacks is left out, and Active reports which layers are active.
package sandbox

import (
	"path/filepath"
	"strconv"
)

// Failed is the exit status of a launcher that fails.
const Failed = 125

// runnerMemory has 384 MiB of the grader's file, the runner's tables, and the submission's static data.
const runnerMemory = 512 << 20

// Command returns the program and the arguments that run a statically linked program in the sandbox. It can open no file
// and make only the system calls that a runner needs.
func Command(program string, args ...string) (path string, argv []string, err error) {
	return command("runner", runnerMemory, "", nil, program, args)
}

// A Box has the rights of a program that must open files, as Valgrind must.
type Box struct {
	Folder string   // in which it may write small files
	Read   []string // files, and folders with all that is in them, that it may read and execute
	Memory uint64   // bytes of address space; 0: any
}

// Command returns the program and the arguments that run a program in the box. Besides Read, it may read itself, the
// system's libraries, and /proc.
func (b Box) Command(program string, args ...string) (path string, argv []string, err error) {
	return command("box", b.Memory, b.Folder, append(libraries(program), b.Read...), program, args)
}

// libraries lists what a dynamically linked program needs, and the parts of Valgrind and the symbols of libc.
func libraries(program string) []string {
	folders := []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/libexec", "/etc/ld.so.cache", "/etc/ld.so.preload", "/proc"}
	if real, err := filepath.EvalSymlinks(program); err == nil {
		prefix := filepath.Dir(filepath.Dir(real)) // of one that is not the system's
		folders = append(folders, filepath.Join(prefix, "lib"), filepath.Join(prefix, "libexec"))
	}
	return folders
}

// without names the layers that the launcher leaves out in tests.
var without = "-"

func command(kind string, memory uint64, folder string, read []string, program string, args []string) (string, []string, error) {
	launcher, err := launcherPath()
	if err != nil {
		return "", nil, err
	}
	argv := append([]string{launcher, kind, without, strconv.FormatUint(memory, 10), folder}, read...)
	return launcher, append(append(argv, "--", program), args...), nil
}
