package build

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
)

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
