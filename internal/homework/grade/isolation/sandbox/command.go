// Package sandbox restricts what a submission can do, without root, namespaces or a daemon. A launcher
// (grader/process/launch.c) gives up its own rights and then executes the submission. The grader compiles the launcher
// once; it contains no code of a submission.
//
// A layer of protection that the kernel does not support is omitted. Active reports which layers are active.
package sandbox

import (
	"path/filepath"
	"strconv"
)

// Failed is the exit status of a launcher that fails.
const Failed = 125

// runnerMemory is the limit of a runner's address space in bytes. It must be enough for the 368 MiB that the runner
// shares with the grader, the runner's tables, and the submission's static data.
const runnerMemory = 512 << 20

// Command returns the path and the arguments that run a statically linked program in the sandbox. The program can open
// no file and can only make the system calls that the runner needs.
func Command(program string, args ...string) (path string, argv []string, err error) {
	return command("runner", runnerMemory, "", nil, program, args)
}

// A Box is a sandbox for a program that has to open files, such as Valgrind.
type Box struct {
	Folder string   // in which it may write small files
	Read   []string // files, and folders with all that is in them, that it may read and execute
	Memory uint64   // bytes of address space; 0: any
}

// Command returns the path and the arguments that run a program in the box. Besides Read, the program may read its own
// file, the system's libraries, and /proc.
func (b Box) Command(program string, args ...string) (path string, argv []string, err error) {
	return command("box", b.Memory, b.Folder, append(libraries(program), b.Read...), program, args)
}

// libraries lists the files and folders that three things need: a dynamically linked program, Valgrind's tools, and
// the debug information of the C library.
func libraries(program string) []string {
	folders := []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/libexec", "/etc/ld.so.cache", "/etc/ld.so.preload", "/proc"}
	if real, err := filepath.EvalSymlinks(program); err == nil {
		prefix := filepath.Dir(filepath.Dir(real)) // of one that is not the system's
		folders = append(folders, filepath.Join(prefix, "lib"), filepath.Join(prefix, "libexec"))
	}
	return folders
}

// omitted names the layers that the launcher leaves out in tests.
var omitted = "-"

func command(kind string, memory uint64, folder string, read []string, program string, args []string) (string, []string, error) {
	launcher, err := launcherPath()
	if err != nil {
		return "", nil, err
	}
	argv := append([]string{launcher, kind, omitted, strconv.FormatUint(memory, 10), folder}, read...)
	return launcher, append(append(argv, "--", program), args...), nil
}
