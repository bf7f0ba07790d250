// Package build makes a program from a submission. It checks the text and the object file (the gate), compiles with the
// flags of the course, and links with grader/process/runner.c, whose malloc replaces the C library's.
//
// The text is checked before any tool reads it. It must not make the compiler put other files into its messages, use
// other flags, or report other line numbers. If macros may build words that are not in the text, the preprocessed text
// is checked, too. The object file must not have code that runs outside the six functions of the homework. It may only
// use the functions of the C library that names.txt lists.
//
// The package does not run submissions. The tools have limits, and only the beginning of their output is kept. A
// submission that exceeds a limit counts as not compiling.
package build

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"llmmemory/grader"
	"llmmemory/internal/jobs"
)

// CourseFlags are the flags with which the handout compiles a submission.
const CourseFlags = "-std=c11 -Wall -Wextra -Wpedantic -Werror -O2 -ggdb"

// ErrRejected means that the compiler rejected a submission. The error's text ends with the compiler's output.
var ErrRejected = errors.New("does not compile with the flags of the course")

// A Kit has what the builds of all submissions share, such as a folder with llm_memory.h and the compiled runner.
type Kit struct {
	Gate     Gate // the actions that staff have changed
	folder   *jobs.Temporary
	dir      string        // path of the folder
	patience time.Duration // limit for one tool, by the clock
	flags    []string      // the course's flags, and those that a distribution adds
	linker   []string      // flags for a faster link; with gold, if it is installed
	// watched makes watched.o and a copy of the C library without debug information, which makes Memcheck faster. It
	// makes them once, and only if they are needed. It returns the flags to link with that copy.
	watched func() ([]string, error)
}

// Close removes the files of the kit and of its builds.
func (k *Kit) Close() error { return k.folder.Remove() }

// NewKit creates the folder of a Kit and compiles the runner (package grader). The compiler flags for submissions are
// the course's flags and then extra.
func NewKit(extra ...string) (*Kit, error) {
	if err := enterable(os.TempDir()); err != nil {
		return nil, err
	}
	folder, err := jobs.NewTemporary("llmgrade-run-")
	if err != nil {
		return nil, err
	}
	dir := folder.Path
	if err := os.Chmod(dir, 0o711); err != nil { // another uid executes the programs in it
		return nil, errors.Join(err, folder.Remove())
	}
	k := &Kit{folder: folder, dir: dir, patience: patience, flags: append(strings.Fields(CourseFlags), extra...)}
	k.linker = []string{"-fno-use-linker-plugin"} // loading it takes time, and no object needs it
	if _, err := exec.LookPath("ld.gold"); err == nil {
		k.linker = append(k.linker, "-fuse-ld=gold") // faster than ld
	}
	for _, name := range []string{"llm_memory.h", "runner.c", "calls.c", "fault.c", "prints.c", "watched.c", "tester.c", "stubs.c"} {
		if err := os.WriteFile(filepath.Join(dir, name), grader.Source(name), 0o644); err != nil {
			return nil, errors.Join(err, k.Close())
		}
	}
	if err := k.compile("runner"); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	k.watched = sync.OnceValues(func() ([]string, error) {
		return k.withoutDebugInfo(), k.compile("watched")
	})
	return k, nil
}

func (k *Kit) compile(name string) error {
	if err := k.gcc("-std=gnu11", "-O1", "-I.", "-c", name+".c", "-o", name+".o"); err != nil {
		return fmt.Errorf("compile the grader's %s.c: %v", name, err)
	}
	return nil
}

// A Program is a submission that can be run.
type Program struct {
	dir     string
	object  string    // with the submission's further names made local
	stubs   []string  // objects of the missing functions
	Advice  []Refusal // findings of the gate that cost nothing
	Missing []string  // functions of the six that it does not define; stubs replace them
	// Misspelled are names that look like a missing one: appendKV.
	Misspelled []string
}

// Native returns the path of the program that was compiled with the course's flags and linked with the grader's
// malloc.
func (p *Program) Native() string { return filepath.Join(p.dir, "native") }

// Watched returns the path of the program that is run under Memcheck. This program uses the C library's malloc. The
// first call links the program. Watched must not be called concurrently for the same program.
func (k *Kit) Watched(p *Program) (string, error) {
	path := filepath.Join(p.dir, "watched")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	library, err := k.watched()
	if err != nil {
		return "", err
	}
	if err := k.ld(p.file("watched"), slices.Concat([]string{"watched.o", p.object}, library, p.stubs)...); err != nil {
		return "", fmt.Errorf("link the program for Memcheck: %w", err)
	}
	return path, nil
}

// Build checks, compiles and links a submission. An error that wraps ErrRejected or ErrGate begins with name. Any other
// error means that the grader failed.
func (k *Kit) Build(name string, source []byte) (*Program, error) {
	dir, err := os.MkdirTemp(k.dir, "s-")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		return nil, err
	}
	p := &Program{dir: dir}
	v := &verdicts{gate: k.Gate}
	found, err := k.check(p, source, v)
	if err == nil {
		err = k.link(p, p.file("compiled.o"), found)
	}
	switch c := (*complaint)(nil); {
	case errors.As(err, &c):
		return nil, fmt.Errorf("%s %w:\n%s", name, ErrRejected, strings.ReplaceAll(c.text, p.file("llm_memory.c"), "llm_memory.c"))
	case errors.Is(err, ErrGate):
		return nil, fmt.Errorf("%s %w", name, err)
	case err != nil:
		return nil, err
	}
	p.Advice = v.advice
	return p, nil
}

func (p *Program) file(name string) string { return filepath.Join(filepath.Base(p.dir), name) }

func (k *Kit) check(p *Program, source []byte, v *verdicts) (*object, error) {
	text, err := readText(source, v)
	if err != nil {
		return nil, err
	}
	// The compiler looks for llm_memory.h in the source's folder first. The source gets a folder without an
	// llm_memory.h, so that the compiler uses the course's llm_memory.h.
	file := p.file("llm_memory.c")
	if err := os.WriteFile(filepath.Join(k.dir, file), source, 0o644); err != nil {
		return nil, err
	}
	if text.pastes || text.defines && text.attributes {
		expanded, err := k.output("gcc", append(slices.Clone(k.flags), "-I.", "-E", file)...)
		if err != nil {
			return nil, err
		}
		if err := readExpanded(expanded, v); err != nil {
			return nil, err
		}
	}
	compiled := p.file("compiled.o")
	// Without the locations of variables, compiling takes less time.
	if err := k.gcc(append(slices.Clone(k.flags), "-fno-var-tracking", "-I.", "-c", file, "-o", compiled)...); err != nil {
		return nil, err
	}
	return k.checkObject(compiled, text, v)
}

// link links the program with the grader's malloc. Only the six functions of the homework stay global symbols of the
// submission, so that its other symbols do not clash with symbols of the grader. link adds stubs for missing functions.
func (k *Kit) link(p *Program, compiled string, found *object) error {
	p.object = p.file("submission.o")
	global := found.defined
	if len(global) == 0 {
		global = []string{"llm_init"} // without any, objcopy keeps all names
	}
	if err := k.run("objcopy", slices.Concat([]string{compiled, p.object}, onlyGlobal(global), redirected("prints", found.needed))...); err != nil {
		return err
	}
	for _, name := range public {
		if !slices.Contains(found.defined, name) {
			p.Missing = append(p.Missing, name)
			p.Misspelled = append(p.Misspelled, misspelled(name, found.other)...)
		}
	}
	var err error
	if p.stubs, err = k.stubs(p); err != nil {
		return err
	}
	native := p.file("native.o")
	if err := k.run("objcopy", append([]string{p.object, native}, redirected("heap", found.needed)...)...); err != nil {
		return err
	}
	return k.ld(p.file("native"), append([]string{"-static", "runner.o", native}, p.stubs...)...)
}

// misspelled returns the names in others that differ from name only in capitals and underscores.
func misspelled(name string, others []string) []string {
	bare := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	return slices.DeleteFunc(slices.Clone(others), func(other string) bool { return bare(other) != bare(name) })
}

// ld links a program, and lets other users execute it, whatever the umask is.
func (k *Kit) ld(program string, args ...string) error {
	args = append(slices.Clone(k.linker), args...)
	args = append(args, "-o", program, "-Wl,--as-needed", "-lm") // for ceil and similar functions
	if err := k.gcc(args...); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(k.dir, program), 0o755)
}

// onlyGlobal returns flags for objcopy that make all symbols local except the given ones.
func onlyGlobal(symbols []string) (flags []string) {
	for _, s := range symbols {
		flags = append(flags, "--keep-global-symbol="+s)
	}
	return flags
}

// redirected returns flags for objcopy that redirect calls of C library functions to functions of the grader, such as
// malloc to submission_malloc. needed has all functions that the submission calls. The flags redirect those of them
// that names.txt lists under heading.
func redirected(heading string, needed []string) (flags []string) {
	for _, f := range names[heading] {
		if slices.Contains(needed, f) {
			flags = append(flags, "--redefine-sym", f+"=submission_"+f)
		}
	}
	return flags
}

func (k *Kit) stubs(p *Program) (objects []string, err error) {
	if len(p.Missing) == 0 {
		return nil, nil
	}
	object := p.file("missing.o")
	args := []string{"-std=c11", "-w", "-I.", "-c", "stubs.c", "-o", object}
	for _, name := range p.Missing {
		args = append(args, "-Dmissing_"+name)
	}
	return []string{object}, k.gcc(args...)
}

// Close removes the program.
func (p *Program) Close() error { return os.RemoveAll(p.dir) }
