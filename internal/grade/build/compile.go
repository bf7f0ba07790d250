package build

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"llmmemory/grader"
)

// CourseFlags is how the handout compiles a submission.
const CourseFlags = "-std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb"

// ErrRejected is wrapped when the compiler takes a submission for wrong; the
// error's text is what the compiler says.
var ErrRejected = errors.New("does not compile with the flags of the course")

// A Kit is what every build needs, made once: a folder of our own with
// llm_memory.h and the compiled runner.
type Kit struct {
	dir      string
	patience time.Duration // with one tool
	flags    []string      // the course's, and what a distribution adds to them
}

// Close removes what the kit and its builds have made.
func (k *Kit) Close() error { return os.RemoveAll(k.dir) }

// NewKit compiles the runner and what Memcheck watches (package grader). The
// flags are added to the course's: a distribution's compiler may have some of its
// own.
func NewKit(flags ...string) (*Kit, error) {
	if err := enterable(os.TempDir()); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "llmgrade-")
	if err == nil {
		err = os.Chmod(dir, 0o711) // another uid executes what is in it
	}
	if err != nil {
		return nil, err
	}
	k := &Kit{dir, time.Minute, append(strings.Fields(CourseFlags), flags...)}
	for name, text := range map[string][]byte{
		"llm_memory.h": grader.Header, "runner.c": grader.Runner, "watched.c": grader.Watched,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			_ = k.Close()
			return nil, err
		}
	}
	for _, name := range []string{"runner", "watched"} {
		if err := k.gcc("-std=gnu11", "-O2", "-I.", "-c", name+".c", "-o", name+".o"); err != nil {
			_ = k.Close()
			return nil, fmt.Errorf("compile the grader's %s.c: %w", name, err)
		}
	}
	return k, nil
}

// A Program is a submission that can be run.
type Program struct {
	dir string
}

// Native is the path of the program with the course's flags and our heap.
func (p *Program) Native() string { return filepath.Join(p.dir, "native") }

// Watched is the path of the program with the real heap, for Memcheck.
func (p *Program) Watched() string { return filepath.Join(p.dir, "watched") }

// Build compiles and links one submission. The name is for messages.
func (k *Kit) Build(name string, source []byte) (*Program, error) {
	dir, err := os.MkdirTemp(k.dir, "s-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		return nil, err
	}
	text, err := readText(source)
	if err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	// Its own folder: an llm_memory.h beside the file is not the course's.
	file := filepath.Join(filepath.Base(dir), "llm_memory.c")
	if err := os.WriteFile(filepath.Join(k.dir, file), source, 0o644); err != nil {
		return nil, err
	}
	rejected := func(err error) error {
		if c := (*complaint)(nil); errors.As(err, &c) {
			return fmt.Errorf("%s %w:\n%s", name, ErrRejected, strings.ReplaceAll(c.text, file, "llm_memory.c"))
		}
		return err
	}
	if text.pastes || text.defines && text.attributes {
		expanded, err := k.output("gcc", append(slices.Clone(k.flags), "-I.", "-E", file)...)
		if err != nil {
			return nil, rejected(err)
		}
		if err := readExpanded(expanded); err != nil {
			return nil, fmt.Errorf("%s %w", name, err)
		}
	}
	object := filepath.Join(filepath.Base(dir), "submission.o")
	args := append(slices.Clone(k.flags), "-I.", "-c", file, "-o", object)
	if err := k.gcc(args...); err != nil {
		return nil, rejected(err)
	}
	p := &Program{dir: dir}
	if err := k.gate(object, text); err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	native := filepath.Join(filepath.Base(dir), "native.o")
	redirect := []string{object, native}
	for _, f := range []string{"malloc", "calloc", "realloc", "free"} {
		redirect = append(redirect, "--redefine-sym", f+"=submission_"+f)
	}
	if err := k.run("objcopy", redirect...); err != nil {
		return nil, err
	}
	if err := k.gcc("-static", "runner.o", native, "-o", filepath.Join(filepath.Base(dir), "native")); err != nil {
		return nil, rejected(err)
	}
	if err := k.gcc("watched.o", object, "-o", filepath.Join(filepath.Base(dir), "watched")); err != nil {
		return nil, rejected(err)
	}
	return p, nil
}

// Close removes the program.
func (p *Program) Close() error { return os.RemoveAll(p.dir) }
