package build

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// ErrGate is wrapped by every Refusal, of a text or of an object file that has or
// needs what a submission must not.
var ErrGate = errors.New("is not run")

// public are the six functions of the handout.
var public = []string{"append_kv", "create_sequence", "fork_sequence", "free_sequence", "llm_destroy", "llm_init"}

// allowed is what a submission may need of libc: the heap, memory and strings,
// printing, and the ends that the harness notices. Each may have its fortified
// twin, __NAME_chk. The others are what gcc makes of innocent code: the stack
// protector of Ubuntu, strcpy and strcat in a row, __builtin_popcount.
var allowed = strings.Fields(`malloc calloc realloc free
	memcpy memmove memset memcmp memchr
	strlen strnlen strcmp strncmp strcpy strncpy strcat strncat strchr strrchr strstr strerror
	printf fprintf puts putchar putc fputs fputc fwrite fflush perror snprintf sprintf vprintf vfprintf vsnprintf vsprintf
	stdout stderr abort exit __assert_fail __errno_location
	__stack_chk_fail _GLOBAL_OFFSET_TABLE_ stpcpy mempcpy __popcountdi2`)

// Sections that gcc makes of C with -ggdb. Others are somebody's wish.
var (
	families = []string{".text", ".data", ".bss", ".rodata", ".rela.", ".rel.", ".tdata", ".tbss"}
	single   = strings.Fields(`.comment .eh_frame .symtab .strtab .shstrtab .symtab_shndx .note.GNU-stack .note.gnu.property
	.rela.eh_frame .debug_info .debug_abbrev .debug_aranges .debug_line .debug_str .debug_line_str .debug_rnglists .debug_ranges
	.debug_loc .debug_loclists .debug_frame .debug_addr .debug_str_offsets .debug_macro .debug_types`)
)

// What an object file may have at most; a correct one has less than 16 KiB.
const (
	mostCode = 1 << 20
	mostData = 16 << 20
)

// traps are the instructions that enter the kernel, and their first bytes, which
// other instructions may have in them.
var (
	traps     = regexp.MustCompile(`\t(syscall|sysenter|int +\$0x80)\b`)
	trapBytes = [][]byte{{0x0f, 0x05}, {0x0f, 0x34}, {0xcd, 0x80}}
)

// gate looks at what an object file has, defines and needs.
func (k *Kit) gate(object string, t *text) error {
	f, err := elf.Open(filepath.Join(k.dir, object))
	if err != nil {
		return fmt.Errorf("read the object file: %w", err)
	}
	defer f.Close()
	suspicious, err := sections(f, t)
	if err != nil {
		return err
	}
	if suspicious {
		code, err := k.output("objdump", "-d", "--no-show-raw-insn", object)
		if err != nil {
			return err
		}
		if trap := traps.Find(code); trap != nil {
			return &Refusal{0, "trap", fmt.Sprintf("it calls the kernel by itself (%s)", bytes.TrimSpace(trap))}
		}
	}
	symbols, err := f.Symbols()
	if err != nil {
		return fmt.Errorf("read the object file: %w", err)
	}
	return symbolGate(f, symbols, t)
}

// sections refuses sections and says whether the code may have traps in it.
func sections(f *elf.File, t *text) (suspicious bool, err error) {
	var code, data uint64
	for _, s := range f.Sections {
		name := strings.TrimPrefix(strings.TrimPrefix(s.Name, ".rela"), ".rel")
		for _, early := range []string{".init", ".fini", ".ctors", ".dtors", ".preinit"} {
			if strings.HasPrefix(name, early) {
				return false, &Refusal{t.line("constructor", "destructor", "__constructor__", "__destructor__"), "early",
					fmt.Sprintf("it has code that runs outside the six calls (section %s)", s.Name)}
			}
		}
		known := s.Name == "" || slices.Contains(single, s.Name) || slices.Contains(single, name) ||
			slices.ContainsFunc(families, func(family string) bool { return name == family || strings.HasPrefix(name, family+".") })
		executable := s.Flags&elf.SHF_EXECINSTR != 0
		switch {
		case !known:
			return false, &Refusal{t.line("section", "__section__"), "section", fmt.Sprintf("it has a section of its own (%.60q)", s.Name)}
		case s.Name == ".note.GNU-stack" && executable:
			return false, &Refusal{0, "section", "it needs a stack that code can run on: a function inside a function does that"}
		case executable && (!strings.HasPrefix(s.Name, ".text") || s.Flags&elf.SHF_WRITE != 0):
			return false, &Refusal{t.line("section", "__section__"), "section", fmt.Sprintf("it has code outside .text (section %.60q)", s.Name)}
		}
		switch {
		case executable:
			if code += s.Size; code > mostCode {
				return false, &Refusal{0, "size", fmt.Sprintf("it has more than %d bytes of code", mostCode)}
			}
			text, err := s.Data()
			if err != nil {
				return false, fmt.Errorf("read the object file: %w", err)
			}
			suspicious = suspicious || slices.ContainsFunc(trapBytes, func(trap []byte) bool { return bytes.Contains(text, trap) })
		case s.Flags&elf.SHF_ALLOC != 0:
			if s.Size > mostData || data+s.Size > mostData {
				return false, &Refusal{0, "size", fmt.Sprintf("it has more than %d bytes of global data", mostData)}
			}
			data += s.Size
		}
	}
	return suspicious, nil
}

func symbolGate(f *elf.File, symbols []elf.Symbol, t *text) error {
	const indirect = elf.SymType(10) // STT_GNU_IFUNC
	var defined []string
	for _, s := range symbols {
		bind, typ := elf.ST_BIND(s.Info), elf.ST_TYPE(s.Info)
		line := t.line(plain(s.Name), s.Name)
		if typ == indirect {
			return &Refusal{line, "ifunc", fmt.Sprintf("it lets code of its own choose what %s is before it runs", s.Name)}
		}
		if bind == elf.STB_LOCAL {
			continue
		}
		if s.Section == elf.SHN_UNDEF {
			if name := plain(s.Name); !slices.Contains(allowed, s.Name) && !slices.Contains(allowed, name) && !slices.Contains(public, s.Name) {
				return &Refusal{line, "needs", fmt.Sprintf("it uses %s, which the homework has no use for", s.Name)}
			}
			continue
		}
		if !slices.Contains(public, s.Name) {
			return &Refusal{line, "defines", fmt.Sprintf("it defines %s, which is not one of the six functions: make it static", s.Name)}
		}
		code := int(s.Section) < len(f.Sections) && f.Sections[s.Section].Flags&elf.SHF_EXECINSTR != 0
		if typ != elf.STT_FUNC || !code {
			return &Refusal{line, "defines", fmt.Sprintf("%s is not a function", s.Name)}
		}
		if bind != elf.STB_GLOBAL {
			return &Refusal{line, "weak", fmt.Sprintf("%s is weak: others could take its place", s.Name)}
		}
		defined = append(defined, s.Name)
	}
	for _, name := range public {
		if !slices.Contains(defined, name) {
			return &Refusal{t.line(name), "missing", fmt.Sprintf("it does not define %s", name)}
		}
	}
	return nil
}

// plain is the name that a student writes: __memcpy_chk and __isoc23_strtol, which
// newer C libraries make of it, are memcpy and strtol.
func plain(symbol string) string {
	if name, found := strings.CutPrefix(symbol, "__"); found {
		if name, found := strings.CutSuffix(name, "_chk"); found {
			return name
		}
		for _, standard := range []string{"isoc99_", "isoc23_", "builtin_"} {
			if name, found := strings.CutPrefix(name, standard); found {
				return name
			}
		}
	}
	return symbol
}
