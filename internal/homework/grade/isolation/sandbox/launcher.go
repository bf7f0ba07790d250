package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"llmmemory/grader"
	"llmmemory/internal/jobs"
)

// launcher compiles the launcher once and returns the open program file. The file has no name any more, so that nothing
// is left when the grader ends.
var launcher = sync.OnceValues(compile)

// launcherPath returns the path by which a child process can execute the launcher. It contains the grader's process
// id, because in a child /proc/self is the child.
func launcherPath() (string, error) {
	file, err := launcher()
	if err != nil {
		return "", fmt.Errorf("sandbox: %w", err)
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd()), nil
}

func compile() (*os.File, error) {
	folder, err := jobs.NewTemporary("llmgrade-run-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Remove() }()
	program := filepath.Join(folder.Path, "launch")
	for _, name := range []string{"launch.c", "bare.c"} {
		if err := os.WriteFile(filepath.Join(folder.Path, name), grader.Source(name), 0o600); err != nil {
			return nil, err
		}
	}
	// A distribution's stack protector needs the C library.
	cmd := exec.Command("gcc", "-std=gnu11", "-O1", "-ffreestanding", "-fno-stack-protector", "-U_FORTIFY_SOURCE",
		"-static", "-nostdlib", filepath.Join(folder.Path, "launch.c"), "-o", program)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the launcher: %w\n%s", err, said)
	}
	return os.Open(program)
}
