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

// allowed is what a submission may need of the C library at no cost: what only
// computes, the heap, printing, and the ends that the harness notices. Each may
// have its fortified twin, __NAME_chk. The last lines are what gcc makes of
// innocent code: the stack protector of Ubuntu, strcpy and strcat in a row,
// __builtin_popcount, the tables of <ctype.h>.
var allowed = strings.Fields(`malloc calloc realloc free aligned_alloc posix_memalign memalign reallocarray malloc_usable_size
	memcpy memmove memset memcmp memchr memrchr memccpy explicit_bzero bcmp bcopy bzero
	strlen strnlen strcmp strncmp strcpy strncpy strcat strncat strchr strrchr strstr strerror strdup strndup
	strspn strcspn strpbrk strtok strtok_r strcoll strxfrm strcasecmp strncasecmp index rindex ffs ffsl ffsll
	strtol strtoul strtoll strtoull strtod strtof strtold strtoimax strtoumax atoi atol atoll atof
	abs labs llabs imaxabs div ldiv lldiv imaxdiv qsort bsearch rand srand rand_r
	isalnum isalpha isblank iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit tolower toupper
	strchrnul strsep strcasestr memmem rawmemchr stpncpy swab qsort_r strerror_r isascii toascii a64l l64a
	wcslen wcscpy wcsncpy wcscmp wcsncmp wmemcpy wmemset wmemcmp towupper towlower iswalpha iswdigit iswspace mbstowcs wcstombs
	random srandom drand48 erand48 lrand48 nrand48 mrand48 srand48
	setjmp _setjmp longjmp
	printf fprintf puts putchar putc fputs fputc fwrite fflush perror snprintf sprintf vprintf vfprintf vsnprintf vsprintf
	dprintf vdprintf sscanf vsscanf setvbuf setbuf ferror feof clearerr
	pthread_mutex_init pthread_mutex_destroy pthread_mutex_lock pthread_mutex_unlock pthread_self mtx_init mtx_lock mtx_unlock mtx_destroy
	stdout stderr stdin abort exit _Exit _exit __assert_fail __assert __errno_location
	__stack_chk_fail _GLOBAL_OFFSET_TABLE_ stpcpy mempcpy __popcountdi2 __ctype_b_loc __ctype_tolower_loc __ctype_toupper_loc
	__overflow __sigsetjmp __longjmp_chk __memcpy_chk __udivti3 __umodti3 __divti3 __modti3`)

// mathematics are the functions of <math.h>: each has twins for float and long
// double, NAMEf and NAMEl.
var mathematics = strings.Fields(`acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim
	floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint
	nextafter nexttoward pow remainder remquo rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc exp10 sincos`)

func init() {
	for _, name := range mathematics {
		allowed = append(allowed, name, name+"f", name+"l")
	}
}

// refusing is what links, and asks the system for something that the sandbox
// refuses in every run.
var refusing = strings.Fields(`time clock clock_gettime gettimeofday difftime localtime gmtime strftime asctime ctime mktime nanosleep sleep usleep
	fopen fopen64 freopen fclose fseek ftell rewind remove rename tmpfile tmpnam
	write open open64 close lseek access unlink getpid isatty sysconf sbrk brk`)

// reading is what links, and reads standard input or the environment, which are empty
// in every run.
var reading = strings.Fields("fread fgets fgetc getc getchar scanf fscanf ungetc getline read getenv secure_getenv")

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

// An object is what the gate has found in an object file.
type object struct {
	defined []string // of the six
	other   []string // symbols of its own that are visible outside
	needed  []string
}

// gate looks at what an object file has, defines and needs.
func (k *Kit) gate(file string, t *text, v *verdicts) (*object, error) {
	f, err := elf.Open(filepath.Join(k.dir, file))
	if err != nil {
		return nil, fmt.Errorf("read the object file: %w", err)
	}
	defer f.Close()
	suspicious, err := sections(f, t, v)
	if err != nil {
		return nil, err
	}
	if suspicious {
		code, err := k.output("objdump", "-d", "--no-show-raw-insn", file)
		if err != nil {
			return nil, err
		}
		if trap := traps.Find(code); trap != nil {
			if err := v.broken(&Refusal{0, "trap", fmt.Sprintf("it calls the kernel by itself (%s)", bytes.TrimSpace(trap))}); err != nil {
				return nil, err
			}
		}
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, fmt.Errorf("read the object file: %w", err)
	}
	o := &object{}
	for _, s := range symbols {
		if err := o.symbol(f, s, t, v); err != nil {
			return nil, err
		}
	}
	return o, o.others(t, v)
}

// sections looks for sections that gcc does not make by itself, and says whether
// the code may have traps in it.
func sections(f *elf.File, t *text, v *verdicts) (suspicious bool, err error) {
	var code, data uint64
	for _, s := range f.Sections {
		if err := sectionName(s, t, v); err != nil {
			return false, err
		}
		switch {
		case s.Flags&elf.SHF_EXECINSTR != 0:
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

func sectionName(s *elf.Section, t *text, v *verdicts) error {
	name := strings.TrimPrefix(strings.TrimPrefix(s.Name, ".rela"), ".rel")
	for _, early := range []string{".init", ".fini", ".ctors", ".dtors", ".preinit"} {
		if strings.HasPrefix(name, early) {
			return v.broken(&Refusal{t.line("constructor", "destructor", "__constructor__", "__destructor__"), "early",
				fmt.Sprintf("it has code that runs outside the six calls (section %s)", s.Name)})
		}
	}
	known := s.Name == "" || slices.Contains(single, s.Name) || slices.Contains(single, name) ||
		slices.ContainsFunc(families, func(family string) bool { return name == family || strings.HasPrefix(name, family+".") })
	executable := s.Flags&elf.SHF_EXECINSTR != 0
	switch {
	case !known:
		return v.broken(&Refusal{t.line("section", "__section__"), "section", fmt.Sprintf("it has a section of its own (%.60q)", s.Name)})
	case s.Name == ".note.GNU-stack" && executable:
		return v.broken(&Refusal{0, "section", "it needs a stack that code can run on: a function inside a function does that"})
	case executable && (!strings.HasPrefix(s.Name, ".text") || s.Flags&elf.SHF_WRITE != 0):
		return v.broken(&Refusal{t.line("section", "__section__"), "section", fmt.Sprintf("it has code outside .text (section %.60q)", s.Name)})
	}
	return nil
}

// symbol looks at one symbol of the object file.
func (o *object) symbol(f *elf.File, s elf.Symbol, t *text, v *verdicts) error {
	const indirect = elf.SymType(10) // STT_GNU_IFUNC
	bind, typ := elf.ST_BIND(s.Info), elf.ST_TYPE(s.Info)
	line := t.line(plain(s.Name), s.Name)
	switch {
	case typ == indirect:
		return v.broken(&Refusal{line, "ifunc", fmt.Sprintf("it lets code of its own choose what %s is before it runs", s.Name)})
	case bind == elf.STB_LOCAL:
		return nil
	case s.Section == elf.SHN_UNDEF:
		o.needed = append(o.needed, s.Name)
		return needs(s.Name, line, v)
	case !slices.Contains(public, s.Name):
		o.other = append(o.other, s.Name)
		return nil
	}
	code := int(s.Section) < len(f.Sections) && f.Sections[s.Section].Flags&elf.SHF_EXECINSTR != 0
	if typ != elf.STT_FUNC || !code {
		return v.broken(&Refusal{line, "symbol", fmt.Sprintf("%s is not a function", s.Name)})
	}
	o.defined = append(o.defined, s.Name)
	if bind != elf.STB_GLOBAL {
		return v.broken(&Refusal{line, "weak", fmt.Sprintf("%s is weak: others could take its place", s.Name)})
	}
	return nil
}

func needs(symbol string, line int, v *verdicts) error {
	name := plain(symbol)
	switch {
	case slices.Contains(allowed, symbol) || slices.Contains(allowed, name) || slices.Contains(public, symbol):
		return nil
	case slices.Contains(refusing, symbol) || slices.Contains(refusing, name):
		return v.broken(&Refusal{line, "refused", fmt.Sprintf("it uses %s, which the sandbox refuses: what depends on it does not work here", name)})
	case slices.Contains(reading, symbol) || slices.Contains(reading, name):
		return v.broken(&Refusal{line, "refused", fmt.Sprintf("it uses %s, which finds nothing here: standard input and the environment are empty", name)})
	}
	return v.broken(&Refusal{line, "needs", fmt.Sprintf("it uses %s, which the homework has no use for", name)})
}

// others names what else is visible, all at once.
func (o *object) others(t *text, v *verdicts) error {
	names := slices.DeleteFunc(slices.Clone(o.other), func(name string) bool { return name == "main" })
	if len(names) < len(o.other) {
		if err := v.broken(&Refusal{t.line("main"), "main", "it defines main: linked with the main program of the course it fails. Take it out before you hand it in"}); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return nil
	}
	ofLibrary := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !library(name) })
	if len(ofLibrary) > 0 {
		rename := "it another name"
		if len(ofLibrary) > 1 {
			rename = "them other names"
		}
		if err := v.broken(&Refusal{t.line(ofLibrary[0]), "defines", fmt.Sprintf("it defines %s, as the C library does: the test program's calls would go there, too. Give %s", list(ofLibrary), rename)}); err != nil {
			return err
		}
	}
	if names = slices.DeleteFunc(names, library); len(names) == 0 {
		return nil
	}
	them := "it"
	if len(names) > 1 {
		them = "them"
	}
	return v.broken(&Refusal{t.line(names[0]), "defines", fmt.Sprintf("it defines %s, which other files can see: static would keep %s to this file", list(names), them)})
}

// list names the first six.
func list(names []string) string {
	text := strings.Join(names[:min(len(names), 6)], ", ")
	if more := len(names) - 6; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// library reports whether a name is one of the C library's.
func library(name string) bool {
	return slices.Contains(allowed, name) || slices.Contains(refusing, name) || slices.Contains(reading, name)
}

// plain is the name that a student writes: __memcpy_chk and __isoc23_strtol, which
// newer C libraries make of it, are memcpy and strtol, and __sysv_signal is signal.
func plain(symbol string) string {
	if name, found := strings.CutPrefix(symbol, "__"); found {
		if name, found := strings.CutSuffix(name, "_chk"); found {
			return name
		}
		for _, standard := range []string{"isoc99_", "isoc23_", "builtin_", "sysv_"} {
			if name, found := strings.CutPrefix(name, standard); found {
				return name
			}
		}
	}
	return symbol
}
