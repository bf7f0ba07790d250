package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"llmmemory/internal/grade/carried"
)

// launcher is the path of the compiled launcher. The file has no name any more,
// so that nothing is left when the grader ends.
var launcher = sync.OnceValues(func() (string, error) {
	file, err := compile()
	if err != nil {
		return "", fmt.Errorf("sandbox: %w", err)
	}
	// Not /proc/self: whoever executes it is another process by then. The file
	// is open for as long as this one lives.
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), file.Fd()), nil
})

func compile() (*os.File, error) {
	dir, err := os.MkdirTemp("", "llmgrade-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "launch")
	cmd := exec.Command("gcc", "-std=gnu11", "-O2", "-static", "-x", "c", "-", "-o", program)
	cmd.Stdin = bytes.NewReader(carried.Launcher)
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile the launcher: %w\n%s", err, said)
	}
	file, err := os.Open(program)
	if err != nil {
		return nil, err
	}
	opened = file
	return file, nil
}

// opened keeps the launcher's file from being closed when it is collected.
var opened *os.File
