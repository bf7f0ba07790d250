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

// launcher is the compiled launcher, open for as long as the grader lives. The
// file has no name any more, so that nothing is left when it ends.
var launcher = sync.OnceValues(compile)

// launcherPath is where a process that is about to become the launcher finds it.
// Not /proc/self, which is that process.
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
	for name, text := range map[string][]byte{"launch.c": grader.Launcher, "bare.c": grader.Bare} {
		if err := os.WriteFile(filepath.Join(folder.Path, name), text, 0o600); err != nil {
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
