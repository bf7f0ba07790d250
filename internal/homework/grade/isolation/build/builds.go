package build

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// ErrSecond means that a submission compiles with the flags of the course, but not with those of the sanitizers.
var ErrSecond = errors.New("the second build does not compile")

// Sanitized builds a program with the sanitizers and the C library's malloc, and returns its path. The program ends at
// the first error. The source is preprocessed with the flags of the course, so that its macros cannot detect the
// sanitizers.
func (k *Kit) Sanitized(p *Program) (string, error) {
	if _, err := k.watched(); err != nil {
		return "", err
	}
	text, object := p.file("llm_memory.i"), p.file("sanitized.o")
	err := k.gcc(append(slices.Clone(k.flags), "-I.", "-E", p.file("llm_memory.c"), "-o", text)...)
	if err != nil {
		return "", fmt.Errorf("build with sanitizers: %w", err)
	}
	c := (*complaint)(nil)
	if err = k.sanitized(p, text, object, "-O0"); errors.As(err, &c) {
		err = k.sanitized(p, text, object, "-O1")
	}
	switch {
	case err == nil:
		return filepath.Join(p.dir, "sanitized"), nil
	case errors.As(err, &c):
		return "", fmt.Errorf("%w: %s", ErrSecond, c.text)
	}
	return "", fmt.Errorf("build with sanitizers: %w", err)
}

func (k *Kit) sanitized(p *Program, text, object, level string) error {
	const watch = "-fsanitize=address,undefined"
	if err := k.gcc("-x", "cpp-output", text, "-c", "-o", object, "-std=c11", level, "-ggdb", "-w", watch, "-fno-sanitize-recover=all"); err != nil {
		return err
	}
	if err := k.run("objcopy", slices.Concat([]string{object}, onlyGlobal(public), redirected("prints", names["prints"]))...); err != nil {
		return err
	}
	return k.ld(p.file("sanitized"), append([]string{"watched.o", object, watch}, p.stubs...)...)
}

// withoutDebugInfo copies the C library and its libm into the kit's folder, and returns the flags to link a program
// with the copies. It changes the build ids of the copies, so that Valgrind finds no installed debug information for
// them. Reading this information makes Memcheck slower. No report needs it, because reports only have lines of
// llm_memory.c. withoutDebugInfo returns no flags if it cannot make the copies or finds no build id.
func (k *Kit) withoutDebugInfo() (flags []string) {
	for _, name := range []string{"libc.so.6", "libm.so.6"} {
		path, err := k.output("gcc", "-print-file-name="+name)
		if err != nil {
			return nil
		}
		library, err := os.ReadFile(string(bytes.TrimSpace(path)))
		if err != nil || !changeBuildID(library) {
			return nil
		}
		target := filepath.Join(k.dir, name)
		if os.WriteFile(target, library, 0o755) != nil || os.Chmod(target, 0o755) != nil { // not subject to the umask
			return nil
		}
	}
	return []string{"-Wl,-rpath," + k.dir}
}

// changeBuildID changes the build id in library, which is the content of a library's file. It returns false if the
// file has no build id.
func changeBuildID(library []byte) bool {
	file, err := elf.NewFile(bytes.NewReader(library))
	if err != nil {
		return false
	}
	note := file.Section(".note.gnu.build-id")
	if note == nil || note.Type != elf.SHT_NOTE {
		return false
	}
	const header = 16 // sizes of name and value, type, "GNU\0"
	end := note.Offset + note.Size
	if note.Size <= header || end > uint64(len(library)) {
		return false
	}
	slices.Reverse(library[note.Offset+header : end])
	return true
}

// enterable returns an error if submissions cannot enter a folder. If the grader runs as root, submissions run as
// another user; otherwise enterable returns nil.
func enterable(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for folder := dir; ; folder = filepath.Dir(folder) {
		info, err := os.Stat(folder)
		if err != nil {
			return fmt.Errorf("folder for temporary files: %w", err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("folder for temporary files: %s: as root, llmgrade runs submissions as another user, who may not go through %s: set TMPDIR to another folder, or chmod o+x it", dir, folder)
		}
		if folder == filepath.Dir(folder) {
			return nil
		}
	}
}
