package build

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/corpus"
)

func strict() *verdicts {
	g := Gate{}
	for name := range rules {
		g[name] = Refuse
	}
	return &verdicts{gate: g}
}

func deep(n int, open, shut string) string {
	return strings.Repeat(open, n) + "1" + strings.Repeat(shut, n)
}

var refusedTexts = map[string]struct {
	text string
	rule string
	line int
}{
	"too big":                  {strings.Repeat(" ", 256<<10+1), "size", 0},
	"NUL":                      {"int x;\nint y\x00;\n", "nul", 2},
	"Macintosh":                {"int x;\n// a comment\r#include </etc/passwd>\n", "return", 2},
	"two returns":              {"#define X \\\r\r\n#include </etc/passwd>\r\n", "return", 1},
	"NUL in a comment":         {"/* \x00 */\n", "nul", 1},
	"parentheses":              {"int x =\n" + deep(1001, "(", ")") + ";\n", "nesting", 2},
	"braces":                   {"void f(void)\n" + deep(1001, "{", "}"), "nesting", 2},
	"digraph brackets":         {deep(501, "<:", ":>") + ";" + deep(1001, "<%(<:", ":>)%>"), "nesting", 1},
	"one behind the other":     {strings.Repeat("int f(int x) { return (x); }\n", 3000) + deep(1001, "[", "]"), "nesting", 3001},
	"in a macro":               {"#define X " + deep(1001, "(", ")") + "\n", "nesting", 1},
	"behind a character":       {"char c = '('; int x =\n" + deep(1001, "(", ")"), "nesting", 2},
	"behind a quote":           {"char c = '\\''; char *s = \"\\\"/*\"; int x =\n" + deep(1001, "(", ")"), "nesting", 2},
	"#line":                    {"int x;\n#line 3 \"grader.c\"\n", "line", 2},
	"# line":                   {"int x;\n  #  line 3\n", "line", 2},
	"# 3":                      {"int x;\n\n# 3 \"llm_memory.h\" 1 3\n", "line", 3},
	"behind a comment":         {"/* one\n two */ # /* three */ line 3\n", "line", 2},
	"behind a BOM":             {"\xef\xbb\xbf#line 3\n", "line", 1},
	"form feed":                {"\f#line 3\n", "line", 1},
	"a line in two":            {"int x;\n#li\\\nne 3\n", "line", 2},
	"in two, with a blank":     {"#li\\ \t\nne 3\n", "line", 1},
	"in two, Windows":          {"\r\n#li\\\r\nne 3\r\n", "line", 2},
	"the mark in two":          {"\\\n#line 3\n", "line", 2},
	"a comment that is not":    {"/\\\n/ comment \\\n still\n#line 1\n", "line", 4},
	"a comment's end in two":   {"/* *\\\n/ \n#line 1\n", "line", 3},
	"digraph":                  {"%:line 3\n", "digraph", 1},
	"digraph paste":            {"#define A(x, y) x %:%: y\n", "digraph", 1},
	"trigraph":                 {"??=line 3\n", "trigraph", 1},
	"trigraph splice":          {"#li??/\nne 3\n", "trigraph", 1},
	"trigraph in a string":     {"char *s =\n\"what??/\" /* \";\n#line 3\n/**/\n", "trigraph", 2},
	"trigraph begins comment":  {"/??/\n* int x; */\n", "trigraph", 2},
	"trigraph ends comment":    {"/* *??/\n/\n#line 3\n/* */\n", "line", 3},
	"absolute":                 {"#include \"llm_memory.h\"\n#include \"/etc/passwd\"\n", "include", 2},
	"above":                    {"#include \"../llm_memory.c\"\n", "include", 1},
	"above the system":         {"#include <../../etc/passwd>\n", "include", 1},
	"the grader":               {"#include \"runner.c\"\n", "include", 1},
	"itself":                   {"#include \"llm_memory.c\"\n", "include", 1},
	"__FILE__":                 {"#include __FILE__\n", "include", 1},
	"macro":                    {"#define H <stdio.h>\n#include H\n", "include", 2},
	"nothing":                  {"#include\n", "include", 1},
	"in two":                   {"#inc\\\nlude <\\\n/etc/passwd>\n", "include", 1},
	"a quote in the name":      {"#include \"x\\\" /*\n#include <stdio.h> /* */\n", "include", 1},
	"not used":                 {"#if 0\n#include \"/etc/passwd\"\n#endif\n", "include", 2},
	"include_next":             {"#include_next <stdio.h>\n", "include", 1},
	"import":                   {"#import <stdio.h>\n", "include", 1},
	"embed":                    {"#embed \"/etc/passwd\"\n", "include", 1},
	"__has_include":            {"#if __has_include(\"/etc/passwd\")\n#endif\n", "include", 1},
	"diagnostic":               {"\n#pragma GCC diagnostic ignored \"-Wall\"\n", "pragma", 2},
	"system_header":            {"#pragma GCC system_header\n", "pragma", 1},
	"optimize":                 {"#pragma GCC optimize \"O0\"\n", "pragma", 1},
	"target":                   {"#pragma GCC target(\"avx2\")\n", "pragma", 1},
	"push_options":             {"#pragma GCC push_options\n", "pragma", 1},
	"weak":                     {"#pragma weak append_kv\n", "symbol", 1},
	"redefine_extname":         {"#pragma redefine_extname malloc system\n", "symbol", 1},
	"asm":                      {"int x;\n__asm__(\".incbin \\\"/etc/passwd\\\"\");\n", "asm", 2},
	"a symbol's name":          {"int x __asm(\"free\");\n", "asm", 1},
	"asm in two":               {"__as\\\nm__(\"\");\n", "asm", 1},
	"constructor":              {"__attribute__((unused,\n constructor)) static void f(void) {}\n", "attribute", 2},
	"constructor with __":      {"static void __attribute__ (( __constructor__(101) )) f(void) {}\n", "attribute", 1},
	"section":                  {"#define S __attribute((section(\".x\")))\n", "attribute", 1},
	"ifunc":                    {"int f(void) __attribute__((ifunc(\"g\")));\n", "attribute", 1},
	"no_sanitize":              {"__attribute__((no_sanitize(\"address\"))) static int x;\n", "attribute", 1},
	"[[constructor]]":          {"int x;\n[[gnu::constructor]] static void f(void) {}\n", "attribute", 2},
	"[[__constructor__]]":      {"[[unused, __gnu__::__constructor__(101)]] static void f(void) {}\n", "attribute", 1},
	"[[__extension__]]":        {"[[__extension__ gnu::section(\".x\")]] int x;\n", "attribute", 1},
	"__extension__ [[":         {"__extension__ [[gnu::weak]] int x;\n", "attribute", 1},
	"[[ with blanks":           {"int f(void) [ /* a */ [\n\tgnu :: alias(\"g\") ] ];\n", "attribute", 2},
	"[[ over lines":            {"int f(void) [ // a\n\\\n\n[ gnu::\nal\\\nias(\"g\")\n]];\n", "attribute", 5},
	"[[ around a directive":    {"[\n#define A 1\n[\n#undef A\ngnu::weak]] int x;\n", "attribute", 5},
	"[[ of digraphs":           {"<:<: gnu::ifunc(\"g\") :>:> int f(void);\n", "attribute", 1},
	"[[ of one digraph":        {"[<:gnu::ifunc(\"g\"):>] int f(void);\n", "attribute", 1},
	"[[ in brackets":           {"int a[sizeof(struct [[gnu::no_sanitize(\"undefined\")]] { int x; })];\n", "attribute", 1},
	"[[ after arrays":          {"int a[2][3], b[1] [[gnu::section(\".x\")]];\n", "attribute", 1},
	"[[ with brackets":         {"[[other(x[1][2], (3)), gnu::constructor]] static void f(void) {}\n", "attribute", 1},
	"[[ in a macro":            {"#define A [[gnu::constructor]]\n", "attribute", 1},
	"[[optimize]]":             {"[[gnu::optimize(\"O0\")]] static void f(void) {}\n", "optimize", 1},
	"attribute over two lines": {"#define A __attribute__\nint f(void) __attribute__\n((weak));\n", "attribute", 3},
}

func TestEachTextIsRefusedForItsRuleAndLine(t *testing.T) {
	for name, c := range refusedTexts {
		t.Run(name, func(t *testing.T) {
			_, err := readText([]byte(c.text), strict())
			require.ErrorIs(t, err, ErrGate)
			r := (*Refusal)(nil)
			require.True(t, errors.As(err, &r))
			require.Equal(t, c.rule, r.Rule, r.Why)
			require.Equal(t, c.line, r.Line, r.Why)
			prefix := "llm_memory.c: "
			if c.line > 0 {
				prefix = fmt.Sprintf("llm_memory.c:%d: ", c.line)
			}
			require.Contains(t, err.Error(), prefix)
			require.Less(t, len(err.Error()), 300)
		})
	}
}

// Ensure that text which only looks like any of these passes.
func TestTextsThatAreFine(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":             "",
		"no end of line":      "int x;",
		"comments":            "/* #line 3 __asm__ %: ??= _Pragma */\n// #include \"/etc/passwd\" ??/\n// \\\n#line 3\n/* \n#line 4\n */\n",
		"strings":             "char *s = \"#line 3 __asm__ _Pragma( %: ((((( __attribute__((section))\";\nchar c = '#';\n",
		"a string in two":     "char *s = \"a\\\n#line 3\\\n\";\n",
		"nested":              "int x = " + strings.Repeat("(", 1000) + "1" + strings.Repeat(")", 1000) + ";\n",
		"brackets in strings": "char *s = \"" + strings.Repeat("(", 2000) + "\"; /*" + strings.Repeat("{", 2000) + "*/ char c[] = {'(', '{'};\n",
		"branches":            strings.Repeat("#if X\nif (a) {\n#else\nif (b) {\n#endif\n}\n", 200),
		"macros":              "#define BEGIN {\n#define END }\n" + strings.Repeat("#define OPEN (((\n", 2000),
		"apostrophe":          "#if 0\nI don't compile /* nor this\n#endif\n",
		"an error":            "#ifdef __clang__\n#error don't use asm or __asm__ (or _Pragma\n#endif\n",
		"macro of lines":      "#define F(x) \\\n  do { \\\n    (x)++; \\\n  } while (0)\n",
		"not at the start":    "#define STR(x) #x\n#define L(line) # line\nint f(int line);\n",
		"null directive":      "#\n # \n#/* */\n",
		"includes":            "#include \"llm_memory.h\"\n#include <stddef.h> // mine\n # include<stdio.h>/* a */\n#include <sys/types.h>\n#include \"string.h\"\n#\tinclude\t<time.h>\r\n",
		"words":               "int line, include, pragma, target, section, alias, weak, optimize, constructor;\nint f(int target) { return (target); }\n",
		"attributes":          "__attribute__((unused, noinline)) static int f(int section) { return (section); }\nint weak;\n",
		"brackets":            "int section = 1, a[2][3] = {[0][1] = 1, [1] = {[section] = 2}}, weak = a[a[0][1]][a[1][0]];\nint f(int x[static 3]);\nint optimize = a<:0:><:section:>;\n",
		"[[unused]]":          "[[gnu::unused, maybe_unused]] static int section;\nint weak[2][3];\n[[gnu::noinline]] static int f(int alias) { return alias; }\n",
		"printf":              "__attribute__((format(printf, 1, 2))) static void say(const char *f, ...);\n",
		"other pragmas":       "#pragma once\n#pragma STDC FP_CONTRACT OFF\n#pragma GCC unroll 4\n#pragma region x\n#ifdef _MSC_VER\n#pragma warning(disable: 4996)\n#pragma clang diagnostic push\n#endif\n",
		"shifts":              "#define TEXT(x) #x\nchar *s = TEXT(" + strings.Repeat("<<: <<% ", 1100) + ");\n",
		"modulo":              "int x = 5 %3, y = a?b%c:d;\n",
		"question marks":      "char *s = \"what??\"; int x = a ? b ? 1 : 2 : 3; char *t = \"??x\";\n",
		"numbers":             "double x = 1e+5, y = .5e-3, z = 0x1p-3; int i = 1'0';\n",
		"unfinished":          "char *s = \"abc\n/* and so on",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readText([]byte(text), strict())
			require.NoError(t, err)
		})
	}
}

func TestAttributesThatMacrosMakeAreSeen(t *testing.T) {
	kit := SharedKit(t)
	for _, text := range []string{
		"#define L [\nL L gnu::constructor ]] static void f(void) {}\n",
		"#define L [\nL\nL gnu::constructor ]] static void f(void) {}\n",
		"#define A(x) [[gnu::x]]\nA(constructor) static void f(void) {}\n",
		"#define A(x) x\nA([) A([) gnu::constructor ]] static void f(void) {}\n",
		"#define A(x, y) [[gnu::x##y]]\nA(construct, or) static void f(void) {}\n",
		"#define A(x) __attribute__((x))\nA(constructor) static void f(void) {}\n",
	} {
		_, err := kit.Build("a test's", []byte(text))
		r := (*Refusal)(nil)
		require.ErrorAs(t, err, &r, text)
		require.Equal(t, "attribute", r.Rule, text)
		require.Contains(t, r.Why, "constructor")
	}
}

func TestTheCorpusPasses(t *testing.T) {
	for _, m := range corpus.Mutants(t, "mutants.txt") {
		source, err := m.Apply(corpus.Correct(t))
		require.NoError(t, err)
		_, err = readText([]byte(source), strict())
		require.NoError(t, err, m.ID)
	}
}

// Ensure that readText does not panic or hang, whatever bytes the source has. If it refuses the source and names a
// line, the source must have this line.
func FuzzReadText(f *testing.F) {
	for _, seed := range []string{"#include \"x\\\" /*\n", "??/\n", "/\\\n* *\\\n/", "__attribute__((", "%:%:", "\\\n\\", "'\\", "# 1 \"x", "[[", "<:["} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := readText(text, strict())
		if r := (*Refusal)(nil); errors.As(err, &r) && r.Line > 1+strings.Count(string(text), "\n") {
			t.Fatalf("line %d", r.Line)
		}
		_ = readExpanded(text, strict())
	})
}

func TestTheFormOfAFileIsNoAttack(t *testing.T) {
	for text, form := range map[string]bool{
		"int x;\rint y;\n":           true,
		"#include \"my.h\"\n":        true,
		"int x;\x00\n":               true,
		"#include \"/etc/passwd\"\n": false,
		"#include \"../other.c\"\n":  false,
		"__asm__(\"nop\");\n":        false,
		"#line 7\n":                  false,
	} {
		_, err := readText([]byte(text), strict())
		r := (*Refusal)(nil)
		require.ErrorAs(t, err, &r, text)
		require.Equal(t, form, r.Form(), text)
	}
}
