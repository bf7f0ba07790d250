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

// ErrGate is wrapped by every Refusal, of a text or of an object file.
var ErrGate = errors.New("is not run")

// public lists the six functions of the handout.
var public = []string{"append_kv", "create_sequence", "fork_sequence", "free_sequence", "llm_destroy", "llm_init"}

// allowed lists the C library functions that a submission may use at no cost: functions that only compute, the
// heap, printing, and functions that end the process, which the runner notices. Each may occur in its checked
// form, __NAME_chk. gcc generates the names on the last lines from harmless code: Ubuntu's stack protector,
// strcpy followed by strcat, __builtin_popcount, the tables of <ctype.h>.
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

// mathematics lists the functions of <math.h>. Each also exists for float and long double, as NAMEf and NAMEl.
var mathematics = strings.Fields(`acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim
	floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint
	nextafter nexttoward pow remainder remquo rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc exp10 sincos`)

func init() {
	for _, name := range mathematics {
		allowed = append(allowed, name, name+"f", name+"l")
	}
}

// refusing lists functions that can be linked, but make system calls that the sandbox refuses.
var refusing = strings.Fields(`time clock clock_gettime gettimeofday difftime localtime gmtime strftime asctime ctime mktime nanosleep sleep usleep
	fopen fopen64 freopen fclose fseek ftell rewind remove rename tmpfile tmpnam
	write open open64 close lseek access unlink getpid isatty sysconf sbrk brk`)

// reading lists functions that can be linked, but read standard input or the environment. Both are empty in
// every run.
var reading = strings.Fields("fread fgets fgetc getc getchar scanf fscanf ungetc getline read getenv secure_getenv")

// Sections that gcc makes of C with -ggdb.
var (
	families = []string{".text", ".data", ".bss", ".rodata", ".rela.", ".rel.", ".tdata", ".tbss"}
	single   = strings.Fields(`.comment .eh_frame .symtab .strtab .shstrtab .symtab_shndx .note.GNU-stack .note.gnu.property
	.rela.eh_frame .debug_info .debug_abbrev .debug_aranges .debug_line .debug_str .debug_line_str .debug_rnglists .debug_ranges
	.debug_loc .debug_loclists .debug_frame .debug_addr .debug_str_offsets .debug_macro .debug_types`)
)

// Limits of an object file; a correct one has less than 16 KiB.
const (
	mostCode = 1 << 20
	mostData = 16 << 20
)

// traps matches the instructions that enter the kernel. trapBytes are their codes. The same bytes also occur
// inside other instructions.
var (
	traps     = regexp.MustCompile(`\t(syscall|sysenter|int +\$0x80)\b`)
	trapBytes = [][]byte{{0x0f, 0x05}, {0x0f, 0x34}, {0xcd, 0x80}}
)

// An object has the symbols of an object file.
type object struct {
	defined []string // of the six
	other   []string // further symbols that are visible outside
	needed  []string
}

// An objectGate checks an object file.
type objectGate struct {
	object
	*text // for the lines of words
	*verdicts
}

func (k *Kit) checkObject(file string, t *text, v *verdicts) (*object, error) {
	f, err := elf.Open(filepath.Join(k.dir, file))
	if err != nil {
		return nil, fmt.Errorf("read the object file: %w", err)
	}
	defer f.Close()
	g := &objectGate{text: t, verdicts: v}
	suspicious, err := g.sections(f)
	if err != nil {
		return nil, err
	}
	if suspicious {
		code, err := k.output("objdump", "-d", "--no-show-raw-insn", file)
		if err != nil {
			return nil, err
		}
		if trap := traps.Find(code); trap != nil {
			g.broken(0, "trap", "it calls the kernel by itself (%s)", bytes.TrimSpace(trap))
		}
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, fmt.Errorf("read the object file: %w", err)
	}
	for _, s := range symbols {
		g.symbol(f, s)
	}
	g.others()
	return &g.object, v.err()
}

// sections checks the sections. It reports whether the code may contain traps.
func (g *objectGate) sections(f *elf.File) (suspicious bool, err error) {
	var code, data uint64
	for _, s := range f.Sections {
		g.section(s)
		switch {
		case s.Flags&elf.SHF_EXECINSTR != 0:
			if code += s.Size; code > mostCode {
				g.refuse(&Refusal{0, "size", fmt.Sprintf("it has more than %d bytes of code", mostCode)})
				return false, g.err()
			}
			text, err := s.Data()
			if err != nil {
				return false, fmt.Errorf("read the object file: %w", err)
			}
			suspicious = suspicious || slices.ContainsFunc(trapBytes, func(trap []byte) bool { return bytes.Contains(text, trap) })
		case s.Flags&elf.SHF_ALLOC != 0:
			if s.Size > mostData || data+s.Size > mostData {
				g.refuse(&Refusal{0, "size", fmt.Sprintf("it has more than %d bytes of global data", mostData)})
				return false, g.err()
			}
			data += s.Size
		}
	}
	return suspicious, g.err()
}

func (g *objectGate) section(s *elf.Section) {
	name := strings.TrimPrefix(strings.TrimPrefix(s.Name, ".rela"), ".rel")
	for _, early := range []string{".init", ".fini", ".ctors", ".dtors", ".preinit"} {
		if strings.HasPrefix(name, early) {
			g.broken(g.line("constructor", "destructor", "__constructor__", "__destructor__"), "early",
				"it has code that runs outside the six calls (section %s)", s.Name)
			return
		}
	}
	known := s.Name == "" || slices.Contains(single, s.Name) || slices.Contains(single, name) ||
		slices.ContainsFunc(families, func(family string) bool { return name == family || strings.HasPrefix(name, family+".") })
	executable := s.Flags&elf.SHF_EXECINSTR != 0
	line := g.line("section", "__section__")
	switch {
	case !known:
		g.broken(line, "section", "it has a section of its own (%.60q)", s.Name)
	case s.Name == ".note.GNU-stack" && executable:
		g.broken(0, "section", "it needs a stack that code can run on: a function inside a function does that")
	case executable && (!strings.HasPrefix(s.Name, ".text") || s.Flags&elf.SHF_WRITE != 0):
		g.broken(line, "section", "it has code outside .text (section %.60q)", s.Name)
	}
}

func (g *objectGate) symbol(f *elf.File, s elf.Symbol) {
	const indirect = elf.SymType(10) // STT_GNU_IFUNC
	bind, typ := elf.ST_BIND(s.Info), elf.ST_TYPE(s.Info)
	line := g.line(plain(s.Name), s.Name)
	code := int(s.Section) < len(f.Sections) && f.Sections[s.Section].Flags&elf.SHF_EXECINSTR != 0
	switch {
	case typ == indirect:
		g.broken(line, "ifunc", "it lets code of its own choose what %s is before it runs", s.Name)
	case bind == elf.STB_LOCAL:
	case s.Section == elf.SHN_UNDEF:
		g.needed = append(g.needed, s.Name)
		g.needs(s.Name, line)
	case !slices.Contains(public, s.Name):
		g.other = append(g.other, s.Name)
	case typ != elf.STT_FUNC || !code:
		g.broken(line, "symbol", "%s is not a function", s.Name)
	default:
		g.defined = append(g.defined, s.Name)
		if bind != elf.STB_GLOBAL {
			g.broken(line, "weak", "%s is weak: others could take its place", s.Name)
		}
	}
}

func (g *objectGate) needs(symbol string, line int) {
	name := plain(symbol)
	switch {
	case slices.Contains(allowed, symbol) || slices.Contains(allowed, name) || slices.Contains(public, symbol):
	case slices.Contains(refusing, symbol) || slices.Contains(refusing, name):
		g.broken(line, "refused", "it uses %s, which the sandbox refuses: what depends on it does not work here", name)
	case slices.Contains(reading, symbol) || slices.Contains(reading, name):
		g.broken(line, "refused", "it uses %s, which finds nothing here: standard input and the environment are empty", name)
	default:
		g.broken(line, "needs", "it uses %s, which the homework has no use for", name)
	}
}

// others checks the other symbols that are visible outside.
func (g *objectGate) others() {
	var ours, ofLibrary []string
	for _, name := range g.other {
		switch {
		case name == "main":
			g.broken(g.line("main"), "main",
				"it defines main: linked with the main program of the course it fails. Take it out before you hand it in")
		case library(name):
			ofLibrary = append(ofLibrary, name)
		default:
			ours = append(ours, name)
		}
	}
	if len(ofLibrary) > 0 {
		g.broken(g.line(ofLibrary[0]), "defines",
			"it defines %s, as the C library does: the test program's calls would go there, too. Give %s",
			list(ofLibrary), ofNumber(ofLibrary, "it another name", "them other names"))
	}
	if len(ours) > 0 {
		g.broken(g.line(ours[0]), "defines",
			"it defines %s, which other files can see: static would keep %s to this file", list(ours), ofNumber(ours, "it", "them"))
	}
}

func ofNumber(names []string, one, several string) string {
	if len(names) == 1 {
		return one
	}
	return several
}

// list names the first six names and counts the rest.
func list(names []string) string {
	text := strings.Join(names[:min(len(names), 6)], ", ")
	if more := len(names) - 6; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func library(name string) bool {
	return slices.Contains(allowed, name) || slices.Contains(refusing, name) || slices.Contains(reading, name)
}

// plain returns the name as a student writes it. Newer C libraries replace memcpy by __memcpy_chk, strtol by
// __isoc23_strtol and signal by __sysv_signal.
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
