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

// withoutDebugInfo copies the C library into the kit's folder, with another build id,
// and returns the flags to link a program against the copy. Valgrind finds the debug
// information of a library by the build id and reads all of it, where a distribution
// has it installed; that takes a third of Memcheck's whole run, and only lines of
// llm_memory.c are ever reported. Names that Memcheck replaces are found without it.
// There are no flags where the library is not as expected.
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
		to := filepath.Join(k.dir, name)
		if os.WriteFile(to, library, 0o755) != nil || os.Chmod(to, 0o755) != nil { // whatever the umask
			return nil
		}
	}
	return []string{"-Wl,-rpath," + k.dir}
}

// changeBuildID reports whether a library had a build id.
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

// enterable reports whether the user that submissions run as when the grader is
// root can go to a folder.
func enterable(dir string) error {
	if os.Getuid() != 0 {
		return nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for at := dir; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return fmt.Errorf("folder for temporary files: %w", err)
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("folder for temporary files: %s: as root, llmgrade runs submissions as another user, who may not go through %s: set TMPDIR to another folder, or chmod o+x it", dir, at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}
