package build

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func newKit(t testing.TB) *Kit {
	t.Helper()
	level.SkipQuick(t)
	k, err := NewKit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.Close()) })
	return k
}

func correct(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../../../testdata/submissions/correct/llm_memory.c")
	require.NoError(t, err)
	return string(text)
}

// compiled goes past the gate of the text, with flags of its own.
func compiled(t *testing.T, k *Kit, source string, flags ...string) (string, *text) {
	t.Helper()
	read, err := readText([]byte(correct(t))) // the lines of whatever is harmless
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
	k := newKit(t)
	for name, c := range map[string]struct{ more, rule, says string }{
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
		"another function":     {"int helper(void) { return 1; }", "defines", "helper, which"},
		"a function of libc":   {"int write(int a, void *b, unsigned long c) { return a + (b == 0) + (int)c; }", "defines", "write, which"},
		"a variable":           {"int counter;", "defines", "counter, which"},
		"a common variable":    {"int counter __attribute__((common));", "defines", "counter, which"},
		"a weak helper":        {"__attribute__((weak)) int helper(void) { return 1; }", "defines", "helper, which"},
		"system":               {"int system(const char *); __attribute__((used)) static int f(void) { return system(\"ls\"); }", "needs", "system, which"},
		"a function's pointer": {"int execl(const char *, const char *, ...); void *const volatile p(void); __attribute__((used)) static void *q(void) { return (void *)execl; }", "needs", "execl, which"},
		"a weak wish":          {"__attribute__((weak)) extern int main(int, char **); __attribute__((used)) static int f(void) { return main != 0; }", "needs", "main, which"},
		"the runner":           {"void *submission_malloc(unsigned long); __attribute__((used)) static void *f(void) { return submission_malloc(1); }", "needs", "submission_malloc"},
		"read":                 {"long read(int, void *, unsigned long); __attribute__((used)) static long f(void *p) { return read(0, p, 9); }", "needs", "read, which"},
		"much data":            {"__attribute__((used)) static char x[1 << 25];", "size", "global data"},
		"data beyond memory":   {"__attribute__((used)) static char x[1ull << 60], y[1ull << 60];", "size", "global data"},
	} {
		t.Run(name, func(t *testing.T) {
			object, read := compiled(t, k, correct(t)+c.more+"\n", "-w", "-mcmodel=large")
			err := k.gate(object, read)
			require.ErrorIs(t, err, ErrGate)
			r := (*Refusal)(nil)
			require.True(t, errors.As(err, &r))
			require.Equal(t, c.rule, r.Rule, err.Error())
			require.Contains(t, err.Error(), c.says)
		})
	}
	for name, c := range map[string]struct{ from, to, rule string }{
		"weak":       {"int append_kv(", "__attribute__((weak)) int append_kv(", "weak"},
		"static":     {"int append_kv(", "#define append_kv append\nint append_kv(", "defines"},
		"a variable": {"int append_kv(", "int (*append_kv)(void) = 0; static __attribute__((used)) int append(", "defines"},
	} {
		t.Run("append_kv is "+name, func(t *testing.T) {
			source := strings.ReplaceAll(strings.Replace(correct(t), c.from, c.to, 1), "#include \"llm_memory.h\"\n",
				"#define append_kv append_kv_of_the_header\n#include \"llm_memory.h\"\n#undef append_kv\n")
			object, read := compiled(t, k, source, "-w")
			err := k.gate(object, read)
			r := (*Refusal)(nil)
			require.True(t, errors.As(err, &r), "%v", err)
			require.Equal(t, c.rule, r.Rule, err.Error())
			if name != "static" {
				require.Positive(t, r.Line)
			}
		})
	}
	t.Run("one of the six is missing", func(t *testing.T) {
		object, read := compiled(t, k, strings.Replace(correct(t), "int append_kv(", "__attribute__((used)) static int append(", 1), "-w")
		require.ErrorContains(t, k.gate(object, read), "does not define append_kv")
	})
}

// What other distributions build with, and harmless code of all kinds, passes.
func TestWhatAnObjectMayHave(t *testing.T) {
	k := newKit(t)
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
		for what, source := range map[string]string{"correct": correct(t), "talkative": correct(t) + talk} {
			t.Run(name+", "+what, func(t *testing.T) {
				object, read := compiled(t, k, source, append(flags, "-Wno-error")...)
				require.NoError(t, k.gate(object, read))
			})
		}
	}
}

// A tool that does not come back is ended with all that it has started, and is
// not the submission's fault.
func TestPatience(t *testing.T) {
	k := newKit(t)
	tools := t.TempDir()
	pids := filepath.Join(tools, "pids")
	require.NoError(t, os.WriteFile(filepath.Join(tools, "gcc"), []byte("#!/bin/sh\nsleep 1000 &\necho $$ $! >"+pids+"\nwait\n"), 0o755))
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	k.patience = 300 * time.Millisecond
	_, err := k.Build("a.c", []byte(correct(t)))
	require.ErrorIs(t, err, errSlow)
	require.NotErrorIs(t, err, ErrRejected)
	text, err := os.ReadFile(pids)
	require.NoError(t, err)
	for _, pid := range strings.Fields(string(text)) {
		n, err := strconv.Atoi(pid)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return !alive(n) }, 10*time.Minute, 10*time.Millisecond)
	}
}

// alive: there, and not waiting to be reaped.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestLinesOfSymbols(t *testing.T) {
	for symbol, name := range map[string]string{
		"__memcpy_chk": "memcpy", "__isoc23_strtol": "strtol", "__isoc99_sscanf": "sscanf", "system": "system",
		"__stack_chk_fail": "__stack_chk_fail", "__errno_location": "__errno_location",
	} {
		require.Equal(t, name, plain(symbol))
	}
}
