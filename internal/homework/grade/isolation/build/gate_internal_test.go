package build

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

var kit = sync.OnceValues(func() (*Kit, error) { return NewKit() })

func TestMain(m *testing.M) {
	status := m.Run()
	if k, err := kit(); err == nil && !testing.Short() {
		_ = k.Close()
	}
	os.Exit(status)
}

// SharedKit returns a copy of the kit that all tests share.
func SharedKit(t testing.TB) *Kit {
	t.Helper()
	level.SkipQuick(t)
	k, err := kit()
	require.NoError(t, err)
	shared := *k
	return &shared
}

// compiled compiles a source with the given flags, -O2 and -ggdb instead of the course's flags. The gate does not check
// the source. compiled returns the path of the object file. It also returns a text, because checkObject needs one: the
// text of the correct submission, in which the gate finds nothing.
func compiled(t *testing.T, k *Kit, source string, flags ...string) (string, *text) {
	t.Helper()
	read, err := readText([]byte(corpus.Correct(t)), &verdicts{}) // the lines of whatever is harmless
	require.NoError(t, err)
	dir, err := os.MkdirTemp(k.dir, "s-")
	require.NoError(t, err)
	file := filepath.Join(filepath.Base(dir), "llm_memory.c")
	require.NoError(t, os.WriteFile(filepath.Join(k.dir, file), []byte(source), 0o644))
	object := strings.TrimSuffix(file, "c") + "o"
	require.NoError(t, k.gcc(append(flags, "-O2", "-ggdb", "-I.", "-c", file, "-o", object)...))
	return object, read
}

func TestWhatAnObjectMustNotHave(t *testing.T) {
	k := SharedKit(t)
	for name, c := range map[string]struct{ code, rule, says string }{
		"constructor":          {"static volatile int x; __attribute__((constructor)) static void f(void) { x = 1; }", "early", ".init_array"},
		"destructor":           {"static volatile int x; __attribute__((destructor)) static void f(void) { x = 1; }", "early", ".fini_array"},
		"pointer to run":       {"static void f(void) {} __attribute__((section(\".preinit_array\"), used)) static void (*p)(void) = f;", "early", ".preinit_array"},
		"asm constructor":      {"__asm__(\".section .init_array,\\\"aw\\\"\\n.quad 0\\n.text\");", "early", ".init_array"},
		"ifunc":                {"static int g(int x) { return x; } static int (*pick(void))(int) { return g; } static int f(int x) __attribute__((ifunc(\"pick\"), used));", "ifunc", "what f is"},
		"public ifunc":         {"static int g(int x) { return x; } static int (*pick(void))(int) { return g; } int f(int x) __attribute__((ifunc(\"pick\")));", "ifunc", "what f is"},
		"code elsewhere":       {"__attribute__((section(\".rodata.code\"), used)) static int f(void) { return 1; }", "section", ".rodata.code"},
		"section of its own":   {"__attribute__((section(\"secret\"), used)) static int x = 1;", "section", "\"secret\""},
		"script for gdb":       {"__attribute__((section(\".debug_gdb_scripts\"), used)) static char x[] = \"x\";", "section", ".debug_gdb_scripts"},
		"warning for ld":       {"__attribute__((section(\".gnu.warning.free\"), used)) static char x[] = \"x\";", "section", ".gnu.warning.free"},
		"stack to run":         {"int printf(const char *, ...); static int use(int (*f)(void)) { return f(); } __attribute__((used, noinline)) static int a(int x) { int in(void) { return x; } return use(in); }", "section", "function inside"},
		"writable code":        {"__asm__(\".section .textual,\\\"awx\\\"\\nnop\\n.text\");", "section", ".textual"},
		"syscall":              {"__attribute__((used)) static void f(void) { __asm__ volatile(\"syscall\" ::: \"memory\"); }", "trap", "syscall"},
		"int 0x80":             {"__attribute__((used)) static void f(void) { __asm__ volatile(\"int $0x80\"); }", "trap", "int"},
		"system":               {"int system(const char *); __attribute__((used)) static int f(void) { return system(\"ls\"); }", "needs", "system, which"},
		"signal":               {"#include <signal.h>\n__attribute__((used)) static int f(void) { return signal(SIGSEGV, SIG_IGN) == SIG_ERR; }", "needs", "uses signal, which"},
		"a function's pointer": {"int execl(const char *, const char *, ...); void *const volatile p(void); __attribute__((used)) static void *q(void) { return (void *)execl; }", "needs", "execl, which"},
		"a weak wish":          {"__attribute__((weak)) extern int main(int, char **); __attribute__((used)) static int f(void) { return main != 0; }", "needs", "main, which"},
		"the runner":           {"void *submission_malloc(unsigned long); __attribute__((used)) static void *f(void) { return submission_malloc(1); }", "needs", "submission_malloc"},
		"much data":            {"__attribute__((used)) static char x[1 << 25];", "size", "global data"},
		"data beyond memory":   {"__attribute__((used)) static char x[1ull << 60], y[1ull << 60];", "size", "global data"},
	} {
		t.Run(name, func(t *testing.T) {
			object, read := compiled(t, k, "#include \"llm_memory.h\"\n"+c.code+"\n", "-w", "-mcmodel=large")
			_, err := k.checkObject(object, read, &verdicts{})
			require.ErrorIs(t, err, ErrGate)
			r := (*Refusal)(nil)
			require.True(t, errors.As(err, &r))
			require.Equal(t, c.rule, r.Rule, err.Error())
			require.Contains(t, err.Error(), c.says)
		})
	}
	for name, c := range map[string]struct{ old, replacement, rule string }{
		"weak":       {"int append_kv(", "__attribute__((weak)) int append_kv(", "weak"},
		"a variable": {"int append_kv(", "int (*append_kv)(void) = 0; static __attribute__((used)) int append(", "symbol"},
	} {
		t.Run("append_kv is "+name, func(t *testing.T) {
			source := strings.ReplaceAll(strings.Replace(corpus.Correct(t), c.old, c.replacement, 1), "#include \"llm_memory.h\"\n",
				"#define append_kv append_kv_of_the_header\n#include \"llm_memory.h\"\n#undef append_kv\n")
			object, read := compiled(t, k, source, "-w")
			_, err := k.checkObject(object, read, &verdicts{})
			r := (*Refusal)(nil)
			require.True(t, errors.As(err, &r), "%v", err)
			require.Equal(t, c.rule, r.Rule, err.Error())
			require.Positive(t, r.Line)
		})
	}
}

func TestWhatIsOnlyAdvice(t *testing.T) {
	k := SharedKit(t)
	for _, c := range []struct{ name, code, rule, says string }{
		{"a helper function", "int helper(void); int helper(void) { return 1; }", "defines", "it defines helper"},
		{"a function of libc", "int write(int a, void *b, unsigned long c); int write(int a, void *b, unsigned long c) { return a + (b == 0) + (int)c; }", "defines", "it defines write, as the C library does"},
		{"two functions of libc", "int read(void); int read(void) { return 1; }\nint index(void); int index(void) { return 2; }", "defines", "it defines read, index, as the C library does: the test program's calls would go there, too. Give them other names"},
		{"a function of the runner", "void *submission_malloc(unsigned long n); void *submission_malloc(unsigned long n) { return (void *)n; }", "defines", "submission_malloc"},
		{"a variable", "int debug_level;", "defines", "debug_level"},
		{"main", "int main(void) { return 0; }", "main", "it defines main"},
		{"a file", "#include <stdio.h>\nstatic FILE *f; __attribute__((used)) static void g(void) { f = fopen(\"x\", \"w\"); }", "refused", "fopen"},
		{"the time", "#include <time.h>\n__attribute__((used)) static long g(void) { return time(NULL); }", "refused", "time"},
		{"the environment", "#include <stdlib.h>\n__attribute__((used)) static char *g(void) { return getenv(\"DEBUG\"); }", "refused", "getenv, which finds nothing here"},
		{"the header among the system's", "#include <llm_memory.h>", "header", "write #include \"llm_memory.h\""},
		{"a pragma", "#pragma GCC diagnostic ignored \"-Wunused-function\"\nstatic void f(void) {}", "pragma", "diagnostic"},
		{"_Pragma", "_Pragma(\"GCC diagnostic ignored \\\"-Wunused-function\\\"\")\nstatic void f(void) {}", "pragma", "diagnostic"},
		{"another header", "#include <sys/mman.h>", "header", "sys/mman.h"},
		{"a level", "__attribute__((optimize(\"O0\"), used)) static int f(void) { return 1; }", "optimize", "optimize"},
		{"a sanitizer", "#ifdef __SANITIZE_ADDRESS__\n#error watched\n#endif", "sanitizer", "__SANITIZE_ADDRESS__"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := os.MkdirTemp(k.dir, "s-")
			require.NoError(t, err)
			v := &verdicts{}
			_, err = k.check(&Program{dir: dir}, []byte("#include \"llm_memory.h\"\n"+c.code+"\n"), v)
			require.NoError(t, err)
			require.Len(t, v.advice, 1)
			require.Equal(t, c.rule, v.advice[0].Rule)
			require.Contains(t, v.advice[0].Why, c.says)
		})
	}
	source := []byte(corpus.Correct(t) + "int debug_level;\n#include <sys/mman.h>\n")
	k.Gate = Gate{"defines": Refuse}
	_, err := k.Build("a.c", source)
	require.ErrorIs(t, err, ErrGate)
	k.Gate = Gate{"defines": Ignore}
	p, err := k.Build("a.c", source)
	require.NoError(t, err)
	require.Empty(t, p.Missing)
	require.Len(t, p.Advice, 1)
	require.Equal(t, "header", p.Advice[0].Rule)
	require.NoError(t, p.Close())
}

func TestTheWholeCLibraryThatComputesMayBeUsed(t *testing.T) {
	k := SharedKit(t)
	p, err := k.Build("a.c", []byte(corpus.Correct(t)+`
#include <ctype.h>
#include <math.h>
#include <threads.h>
__attribute__((used)) static int locks(mtx_t *m) { return mtx_lock(m) + mtx_unlock(m); }
__attribute__((used)) static int rounds(volatile double x, volatile float y, volatile long double z) {
    return (int)(ceil(x / 16) + pow(x, 2) + hypot(x, x) + atan2(x, x) + ceilf(y) + roundf(y) + sqrtf(y) + log2f(y) + fmaxf(y, y) + powl(z, z));
}
__attribute__((used)) static int computes(int n) {
    div_t d = div(n, 16);
    void *a = aligned_alloc(64, 128);
    free(a);
    return d.quot + abs(n) + toupper(n) + atoi("3") + (int)strtol("4", NULL, 10);
}
`))
	require.NoError(t, err)
	require.Empty(t, p.Advice)
	_, err = k.Sanitized(p)
	require.NoError(t, err)
	require.NoError(t, p.Close())
}

func TestMissingFunctionsBecomeStubs(t *testing.T) {
	k := SharedKit(t)
	source := strings.ReplaceAll(strings.ReplaceAll(corpus.Correct(t), "int append_kv(", "__attribute__((used)) static int append("),
		"int llm_destroy(", "__attribute__((used)) static int destroy(")
	p, err := k.Build("a.c", []byte(source))
	require.NoError(t, err)
	require.Equal(t, []string{"append_kv", "llm_destroy"}, p.Missing)
	require.Empty(t, p.Misspelled)
	_, err = k.Sanitized(p)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	p, err = k.Build("a.c", []byte("#include \"llm_memory.h\"\nint helper(void) { return 1; }\nint appendKV(void) { return 2; }\n"))
	require.NoError(t, err)
	require.Equal(t, public, p.Missing)
	require.Equal(t, []string{"appendKV"}, p.Misspelled)
}

func TestAGateFileIsChecked(t *testing.T) {
	g, err := ParseGate([]byte(Gate{}.String()))
	require.NoError(t, err)
	require.Equal(t, rules, g)
	require.Equal(t, gateText, Gate{}.String())
	require.Contains(t, Gate{"size": Ignore}.String(), "size       ignore  # more than 256 KiB")
	for _, c := range []struct{ name, text, wantErr string }{
		{"unknown rule", "size refuse\ngoto refuse\n", "line 2: there is no rule \"goto\""},
		{"unknown action", "size forbid\n", "\"forbid\" is not refuse"},
		{"one word", "# comment\nsize\n", "line 2: it has to be a rule and"},
	} {
		_, err := ParseGate([]byte(c.text))
		require.ErrorIs(t, err, ErrGateFile, c.name)
		require.ErrorContains(t, err, c.wantErr, c.name)
	}
}

// Ensure that the gate accepts the object files of other distributions' compilers, and all kinds of harmless code.
func TestWhatAnObjectMayHave(t *testing.T) {
	level.SkipNormal(t)
	k := SharedKit(t)
	const talk = `
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
__attribute__((used, format(printf, 1, 2))) static void say(const char *format, ...) {
    static _Thread_local int calls;
    char text[100], copy[100];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    strcpy(copy, text);
    strcat(copy, text);
    sprintf(text, "%d%s", ++calls, copy);
    snprintf(copy, 10, "%s", text);
    memset(text + 1, __builtin_popcountll(strlen(copy)), 2);
    strncpy(text, copy, 50);
    fprintf(stderr, "%s: %s\n", text, strerror(errno));
    printf("%s\n", copy);
    putchar('x');
    fputs(copy, stdout);
    fflush(stdout);
    if (strchr(copy, 'x') == NULL && memcmp(copy, text, 3) != 0) perror(text);
    assert(strcmp(copy, text) == 0);
    abort();
}
static const int trap_bytes = 0x050f;
__attribute__((used)) static int unlucky(int x) { return x * 0x050f + 0x340f + 0x80cd + trap_bytes; }
`
	for name, flags := range map[string][]string{
		"Debian 12":     strings.Fields(CourseFlags),
		"without -O":    {"-O0"},
		"Ubuntu 22.04":  append(strings.Fields(CourseFlags), strings.Fields("-D_FORTIFY_SOURCE=2 -fstack-protector-strong -fstack-clash-protection -fcf-protection -fPIE")...),
		"Ubuntu 24.04":  append(strings.Fields(CourseFlags), strings.Fields("-D_FORTIFY_SOURCE=3 -fstack-protector-strong -fstack-clash-protection -fcf-protection -mno-omit-leaf-frame-pointer")...),
		"stack -all":    {"-O3", "-fstack-protector-all", "-fno-pie"},
		"DWARF 4":       {"-O2", "-gdwarf-4"},
		"GNU C":         {"-std=gnu17", "-O2"},
		"many sections": {"-O2", "-ffunction-sections", "-fdata-sections"},
	} {
		t.Run(name, func(t *testing.T) {
			object, read := compiled(t, k, corpus.Correct(t)+talk, append(flags, "-Wno-error")...)
			v := &verdicts{}
			_, err := k.checkObject(object, read, v)
			require.NoError(t, err)
			require.Empty(t, v.advice)
		})
	}
}

// Ensure that a hanging tool is killed together with its child processes. The submission must not be rejected for it.
func TestAToolThatHangsIsEndedWithItsChildren(t *testing.T) {
	k := SharedKit(t)
	tools := t.TempDir()
	pids := filepath.Join(tools, "pids")
	require.NoError(t, os.WriteFile(filepath.Join(tools, "gcc"), []byte("#!/bin/sh\nsleep 1000 &\necho $$ $! >"+pids+"\nwait\n"), 0o755))
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	k.patience = 300 * time.Millisecond
	_, err := k.Build("a.c", []byte(corpus.Correct(t)))
	require.ErrorContains(t, err, "did not finish within")
	require.NotErrorIs(t, err, ErrRejected)
	text, err := os.ReadFile(pids)
	require.NoError(t, err)
	for pid := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(pid)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return !alive(n) }, 10*time.Minute, 10*time.Millisecond)
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// Ensure that the gate reports a function by the name that a student writes. The headers of the C library replace some
// functions by other symbols, for example memcpy by __memcpy_chk. Different versions of the library use different
// symbols.
func TestFortifiedSymbolsAreNamedWithoutTheirPrefix(t *testing.T) {
	for symbol, name := range map[string]string{
		"__memcpy_chk": "memcpy", "__isoc23_strtol": "strtol", "__isoc99_sscanf": "sscanf", "system": "system",
		"__stack_chk_fail": "__stack_chk_fail", "__errno_location": "__errno_location",
	} {
		require.Equal(t, name, plain(symbol))
	}
}
