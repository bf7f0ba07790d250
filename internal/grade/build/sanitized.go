package build

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
)

// ErrSecond is wrapped when a submission that compiles with the course's flags
// does not with the sanitizers', which is no fault of its own: plain inline
// functions, for one, are nowhere at -O0.
var ErrSecond = errors.New("the second build does not compile")

// Sanitized builds a program a second time, with the sanitizers and the real
// heap, and returns the path. What is wrong ends it. The text is preprocessed
// with the flags of the course, so that it cannot tell one build from another.
func (k *Kit) Sanitized(p *Program) (string, error) {
	if err := k.watched(); err != nil {
		return "", err
	}
	text, object := p.file("llm_memory.i"), p.file("sanitized.o")
	err := k.gcc(append(slices.Clone(k.flags), "-I.", "-E", p.file("llm_memory.c"), "-o", text)...)
	if err != nil {
		return "", fmt.Errorf("build with sanitizers: %w", err)
	}
	err = k.sanitized(p, text, object, "-O0")
	if c := (*complaint)(nil); errors.As(err, &c) {
		err = k.sanitized(p, text, object, "-O1")
	}
	if err == nil {
		return filepath.Join(p.dir, "sanitized"), nil
	}
	if c := (*complaint)(nil); errors.As(err, &c) {
		return "", fmt.Errorf("%w: %s", ErrSecond, c.text)
	}
	return "", fmt.Errorf("build with sanitizers: %w", err)
}

func (k *Kit) sanitized(p *Program, text, object, level string) error {
	const watch = "-fsanitize=address,undefined"
	if err := k.gcc("-x", "cpp-output", text, "-c", "-o", object, "-std=c11", level, "-ggdb", "-w", watch, "-fno-sanitize-recover=all"); err != nil {
		return err
	}
	local := []string{object}
	for _, name := range public {
		local = append(local, "--keep-global-symbol="+name)
	}
	if err := k.run("objcopy", local...); err != nil {
		return err
	}
	return k.ld(p.file("sanitized"), append([]string{"watched.o", object, watch}, p.stubs...)...)
}
