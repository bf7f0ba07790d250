package build

import (
	"fmt"
	"path/filepath"
)

// sanitizers is how the second build of a submission is made: what is wrong ends
// the program.
var sanitizers = []string{"-std=c11", "-O0", "-ggdb", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"}

// Sanitized builds a program a second time, with the sanitizers and the real
// heap, and returns the path.
func (k *Kit) Sanitized(p *Program) (string, error) {
	dir := filepath.Base(p.dir)
	args := append([]string{"watched.o", filepath.Join(dir, "llm_memory.c"), "-I.", "-o", filepath.Join(dir, "sanitized")}, sanitizers...)
	if err := k.gcc(args...); err != nil {
		return "", fmt.Errorf("build with sanitizers: %w", err)
	}
	return filepath.Join(p.dir, "sanitized"), nil
}
