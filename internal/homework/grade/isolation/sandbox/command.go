// Package sandbox restricts a submission before it starts, without root,
// namespaces or a daemon: a launcher (grader/process/launch.c) gives up its own rights
// and then executes the submission. The launcher is compiled once by
// each grader that starts one, and linked with nothing of a submission.
//
// A layer that the kernel lacks is left out, and Active reports which layers are active.
package sandbox

import (
	"path/filepath"
	"strconv"
)

// Failed is the exit status of a launcher that could not do its work.
const Failed = 125

// runnerMemory is the address space of a program that Command runs: 384 MiB of the grader's
// file, the runner's own tables, and the static data of the submission.
const runnerMemory = 512 << 20

// Command is the program and the arguments that run a statically linked program
// shut in: of the file system it can execute itself, and of the kernel's calls
// make those that a runner needs.
func Command(program string, args ...string) (path string, argv []string, err error) {
	return command("runner", runnerMemory, "", nil, program, args)
}

// A Box has the rights of a program that must open files, as Valgrind must.
type Box struct {
	Folder string   // where it may write small files
	Read   []string // what it may read and execute: files, and folders with all beneath
	Memory uint64   // bytes of address space; 0: any
}

// Command is the program and the arguments that run a program in the box, which
// beside Read has itself, the system's libraries, and /proc to read.
func (b Box) Command(program string, args ...string) (path string, argv []string, err error) {
	return command("box", b.Memory, b.Folder, append(libraries(program), b.Read...), program, args)
}

// libraries is where a dynamically linked program finds the others it needs, and
// Valgrind its parts and the symbols of libc.
func libraries(program string) []string {
	folders := []string{"/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/libexec", "/etc/ld.so.cache", "/etc/ld.so.preload", "/proc"}
	if real, err := filepath.EvalSymlinks(program); err == nil {
		prefix := filepath.Dir(filepath.Dir(real)) // of one that is not the system's
		folders = append(folders, filepath.Join(prefix, "lib"), filepath.Join(prefix, "libexec"))
	}
	return folders
}

// without names layers to leave out, as the launcher wants them, in tests.
var without = "-"

func command(kind string, memory uint64, folder string, read []string, program string, args []string) (string, []string, error) {
	launcher, err := launcherPath()
	if err != nil {
		return "", nil, err
	}
	argv := append([]string{launcher, kind, without, strconv.FormatUint(memory, 10), folder}, read...)
	return launcher, append(append(argv, "--", program), args...), nil
}
