package build_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

func TestWordsMadeByMacros(t *testing.T) {
	k := build.SharedKit(t)
	lines := strings.Count(corpus.Correct(t), "\n")
	for name, c := range map[string]struct {
		code string
		line int
		rule string
	}{
		"asm":       {"#define CAT(a, b) a##b\nCAT(__as, m__)(\".incbin \\\"/etc/passwd\\\"\");\n", 2, "assembly"},
		"_Pragma":   {"#define CAT(a, b) a##b\n\nCAT(_Pra, gma)(\"redefine_extname malloc system\")\nstatic inline int f(void) { return 1; }\n", 3, "#pragma redefine_extname"},
		"attribute": {"#define EARLY no_sanitize_address\n#define A(x) __attribute__((x))\nA(EARLY)\nstatic inline int f(void) { return 1; }\n", 3, "no_sanitize_address"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := k.Build("a.c", []byte(corpus.Correct(t)+c.code))
			require.ErrorIs(t, err, build.ErrGate)
			require.ErrorContains(t, err, fmt.Sprintf("a.c is not run: llm_memory.c:%d: ", lines+c.line))
			require.ErrorContains(t, err, c.rule)
		})
	}
	p, err := k.Build("a.c", []byte(corpus.Correct(t)+"#include <assert.h>\n#define CAT(a, b) a##b\n#define U __attribute__((unused))\n"+
		"U static inline int CAT(f, 1)(int section) { assert(section); return section; }\n"))
	require.NoError(t, err)
	require.NoError(t, p.Close())
}

// Ensure that a source is rejected with a short message if it needs too much of the compiler's time or memory.
func TestHostileToTheCompiler(t *testing.T) {
	level.SkipNormal(t)
	k := build.SharedKit(t)
	var bomb strings.Builder
	for i := range 40 {
		fmt.Fprintf(&bomb, "#define A%d A%d + A%d\n", i+1, i, i)
	}
	for name, c := range map[string]struct{ text, says string }{
		"100,000 errors":  {"void f(void) {\n" + strings.Repeat("x;", 100_000) + "}\n", "'x' undeclared"},
		"10,000 warnings": {unused(10_000), "lines more"},
		"a long line":     {"int x = " + strings.Repeat("y+", 100_000) + "1;\n", "..."},
		"terminal codes":  {"int x = \x1b[2J\x07;\n", "stray"},
		"macro bomb":      {"#define A0 1\n" + bomb.String() + "int x = A40;\n", "gcc "}, // says which limit it met first: time, memory, or gcc's own
		"memory":          {"static char x[] = \"" + strings.Repeat("\\0", 100) + "\"" + ";\n" + doubling(34), "gcc "},
		"big file":        {"static char x[1ul << 30] = {1};\nchar *f(void) { return x; }\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if (name == "macro bomb" || name == "100,000 errors") && !level.Exhaustive() {
				t.Skip("it takes seconds, and another case meets the same limit")
			}
			_, err := k.Build("a.c", []byte(c.text))
			require.Error(t, err)
			if name == "big file" { // depends on the compiler: the gate may say it
				require.Condition(t, func() bool {
					return strings.Contains(err.Error(), build.ErrRejected.Error()) || strings.Contains(err.Error(), build.ErrGate.Error())
				}, "%v", err)
			} else {
				require.ErrorIs(t, err, build.ErrRejected)
			}
			require.ErrorContains(t, err, c.says)
			require.Less(t, len(err.Error()), 20_000)
			require.Less(t, strings.Count(err.Error(), "\n"), 60)
			require.NotContains(t, err.Error(), "\x1b")
		})
	}
}

func unused(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "static int x%d;\n", i)
	}
	return b.String()
}

func doubling(n int) string {
	var b strings.Builder
	b.WriteString("#define S0 \"0123456789abcdef\"\n")
	for i := range n {
		fmt.Fprintf(&b, "#define S%d S%d S%d\n", i+1, i, i)
	}
	fmt.Fprintf(&b, "char *s = S%d;\n", n)
	return b.String()
}

func TestAMissingCompilerIsTheGradersTrouble(t *testing.T) {
	k := build.SharedKit(t)
	t.Setenv("PATH", t.TempDir())
	_, err := k.Build("a.c", []byte(corpus.Correct(t)))
	require.Error(t, err)
	require.NotErrorIs(t, err, build.ErrRejected)
	require.NotErrorIs(t, err, build.ErrGate)
}

func TestTheCompilersLimitsHold(t *testing.T) {
	tools := t.TempDir()
	k := build.SharedKit(t)
	require.NoError(t, os.WriteFile(filepath.Join(tools, "gcc"),
		[]byte("#!/bin/sh\nulimit -t >&2\nulimit -v >&2\nulimit -f >&2\nexit 1\n"), 0o755))
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	_, err := k.Build("a.c", []byte(corpus.Correct(t)))
	require.ErrorIs(t, err, build.ErrRejected)
	require.ErrorContains(t, err, "\n60\n1048576\n131072")
}
