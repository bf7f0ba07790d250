package build

import (
	"debug/elf"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ErrGate is wrapped when an object file has or needs what a submission must
// not: the text says what.
var ErrGate = errors.New("is not run")

// public are the six functions of the handout.
var public = []string{"append_kv", "create_sequence", "fork_sequence", "free_sequence", "llm_destroy", "llm_init"}

// allowed is what a submission may need of libc: the heap, memory and strings,
// printing, and the ends that the harness notices.
var allowed = []string{
	"malloc", "calloc", "realloc", "free",
	"memcpy", "memmove", "memset", "memcmp", "memchr",
	"strlen", "strcmp", "strncmp", "strcpy", "strncpy", "strcat", "strncat", "strchr", "strrchr", "strstr", "strerror",
	"printf", "fprintf", "puts", "putchar", "fputs", "fputc", "fwrite", "fflush", "perror", "snprintf", "sprintf",
	"stdout", "stderr", "abort", "exit", "__assert_fail", "__errno_location", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_",
	"__memcpy_chk", "__memmove_chk", "__memset_chk", "__strcpy_chk", "__strncpy_chk", "__strcat_chk", "__strncat_chk",
	"__printf_chk", "__fprintf_chk", "__snprintf_chk", "__sprintf_chk",
}

// traps are the instructions that enter the kernel.
var traps = regexp.MustCompile(`\t(syscall|sysenter|int +\$0x80)\b`)

// gate looks at what an object file defines and needs.
func (k *Kit) gate(object string) error {
	f, err := elf.Open(filepath.Join(k.dir, object))
	if err != nil {
		return fmt.Errorf("%w: %v", ErrGate, err)
	}
	defer f.Close()
	for _, s := range f.Sections {
		for _, early := range []string{".init", ".fini", ".ctors", ".dtors", ".preinit"} {
			if strings.HasPrefix(s.Name, early) {
				return fmt.Errorf("%w: it has code that runs outside the six calls (section %s)", ErrGate, s.Name)
			}
		}
	}
	code, err := k.output("objdump", "-d", "--no-show-raw-insn", object)
	if err != nil {
		return err
	}
	if trap := traps.FindString(code); trap != "" {
		return fmt.Errorf("%w: it calls the kernel by itself (%s)", ErrGate, strings.TrimSpace(trap))
	}
	symbols, err := f.Symbols()
	if err != nil {
		return fmt.Errorf("%w: %v", ErrGate, err)
	}
	var defined []string
	for _, s := range symbols {
		if bind := elf.ST_BIND(s.Info); bind == elf.STB_LOCAL {
			continue
		}
		switch {
		case s.Section == elf.SHN_UNDEF && !slices.Contains(allowed, s.Name) && !slices.Contains(public, s.Name):
			return fmt.Errorf("%w: it uses %s, which the homework has no use for", ErrGate, s.Name)
		case s.Section != elf.SHN_UNDEF:
			defined = append(defined, s.Name)
		}
	}
	slices.Sort(defined)
	for _, name := range public {
		if !slices.Contains(defined, name) {
			return fmt.Errorf("%w: it does not define %s", ErrGate, name)
		}
	}
	for _, name := range defined {
		if !slices.Contains(public, name) {
			return fmt.Errorf("%w: it defines %s, which is not one of the six functions: make it static", ErrGate, name)
		}
	}
	return nil
}
