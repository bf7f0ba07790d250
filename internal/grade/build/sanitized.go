package build

import (
	"errors"
	"fmt"
	"path/filepath"
)

// ErrSecond is wrapped when a submission that compiles with the course's flags
// does not with the sanitizers', which is no fault of its own: plain inline
// functions, for one, are nowhere at -O0.
var ErrSecond = errors.New("the second build does not compile")

// Sanitized builds a program a second time, with the sanitizers and the real
// heap, and returns the path. What is wrong ends it.
func (k *Kit) Sanitized(p *Program) (string, error) {
	dir := filepath.Base(p.dir)
	var err error
	for _, level := range []string{"-O0", "-O1"} {
		err = k.gcc("watched.o", filepath.Join(dir, "llm_memory.c"), "-I.", "-o", filepath.Join(dir, "sanitized"),
			"-std=c11", level, "-ggdb", "-w", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
		if err == nil {
			return filepath.Join(p.dir, "sanitized"), nil
		}
	}
	if c := (*complaint)(nil); errors.As(err, &c) {
		return "", fmt.Errorf("%w: %s", ErrSecond, c.text)
	}
	return "", fmt.Errorf("build with sanitizers: %w", err)
}
