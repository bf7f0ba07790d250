package build

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/grader"
	"llmmemory/internal/testkit/level"
)

// A speller writes C in spellings that C11's first four translation phases make equal: with digraphs and trigraphs,
// lines that end with a backslash, comments, and other white space.
type speller struct{ *rand.Rand }

var (
	digraphOf     = map[string]string{"#": "%:", "##": "%:%:", "[": "<:", "]": ":>", "{": "<%", "}": "%>"}
	trigraphOf    = map[string]string{"#": "??=", "##": "??=??=", "[": "??(", "]": "??)", "{": "??<", "}": "??>"}
	inDirectives  = []string{" ", "\t", "/**/", " /* a */ ", "/* 'b\n# \" */", " \\\n ", "\\\r\n\t", "??/\n "}
	betweenTokens = append([]string{"\f", "\v", "\n", "// c \\\n still a comment\n"}, inDirectives...)
)

func (s speller) one(of []string) string { return of[s.IntN(len(of))] }

// line spells a line. Blanks separate its tokens. A ~ is a blank within a token.
func (s speller) line(line string) string {
	tokens, spaces := strings.Fields(line), betweenTokens
	var b strings.Builder
	if tokens[0] == "#" {
		spaces = inDirectives
		b.WriteString(s.one([]string{"", "", " ", "\f", "/**/", "\\\n", "/*\n*/\t"}))
	}
	for i, t := range tokens {
		if i > 0 {
			b.WriteString(s.one(spaces))
		}
		b.WriteString(s.token(strings.ReplaceAll(t, "~", " ")))
	}
	return b.String() + s.one([]string{"\n", "\n", "\r\n", " \n", "// d\n", "\n%:\n", "\n??=\n", "\n#\n", "/* e */\n"})
}

func (s speller) token(t string) string {
	if other := []string{t, digraphOf[t], trigraphOf[t]}[s.IntN(3)]; other != "" {
		t = other
	}
	for range s.IntN(2) {
		at := s.IntN(len(t))
		if !strings.HasPrefix(t, "??") {
			t = t[:at] + s.one([]string{"\\\n", "\\\r\n", "??/\n"}) + t[at:]
		}
	}
	return t
}

// preprocessed is what gcc makes of a text, with one spelling of each token.
func preprocessed(t *testing.T, dir, text string) string {
	t.Helper()
	file := filepath.Join(dir, "x.c")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	out, err := exec.Command("gcc", "-std=c11", "-E", "-P", "-w", "-I"+dir, file).Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	for plain, digraph := range digraphOf {
		out = []byte(strings.ReplaceAll(string(out), digraph, plain))
	}
	return fmt.Sprint(err, strings.Join(strings.Fields(string(out)), ""))
}

var spelledRight = []string{
	"# include <iso646.h>", "# include <stddef.h>", `# include "llm_memory.h"`, "#", "# define PASTE(a, b) a ## b", "# define PAIR { 1 , 2 }",
	"# define TEXT(x) # x", "# if 1", "# define EMPTY", "# else", "# include <stdbool.h>", "# endif", "# undef EMPTY", "# pragma STDC FP_CONTRACT OFF",
	"static int PASTE ( arr , ay ) [ 2 ] = PAIR ;", "static int f ( int x ) { return array [ array [ x ] ] and not x ; }",
	`static const char * text = TEXT ( a~b ) "#include~</etc/passwd>" ;`,
}

var spelledWrong = map[string]string{
	`# include "/nowhere/x"`: "include", `# include <../x.h>`: "include", "# include_next <stddef.h>": "include", "# import <stddef.h>": "include",
	"# include __FILE__": "include", "# ifdef __has_include": "include",
	"# line 3": "line", `# 3 "x"`: "line", "# pragma weak append_kv": "symbol", "# pragma GCC optimize 0": "pragma",
	`__asm__ ( "nop" ) ;`: "asm", "# define A asm": "asm",
	"__attribute__ ( ( constructor ) ) static void f ( void ) { }":                           "attribute",
	"__extension__ [ [ gnu :: constructor ] ] static void f ( void ) { }":                    "attribute",
	"# define A [ [ gnu :: __section__ ( \".x\" ) ] ]":                                       "attribute",
	"static int x = " + strings.Repeat("( ", 1001) + "1 " + strings.Repeat(") ", 1001) + ";": "nesting",
}

// Ensure that the gate judges a text by what it is to gcc, however it is spelled.
func TestASpellingChangesNoVerdict(t *testing.T) {
	level.SkipQuick(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "llm_memory.h"), grader.Header, 0o644))
	s := speller{rand.New(rand.NewPCG(5, 4))}
	want := preprocessed(t, dir, strings.ReplaceAll(strings.Join(spelledRight, "\n"), "~", " ")+"\n")
	require.Contains(t, want, "staticintarray[2]={1,2}")
	for range level.Pick(20, 400) {
		var text strings.Builder
		for _, line := range spelledRight {
			text.WriteString(s.line(line))
		}
		require.Equal(t, want, preprocessed(t, dir, text.String()), "%s", text.String())
		v := strict()
		v.gate["digraph"], v.gate["trigraph"] = Advise, Advise
		_, err := readText([]byte(text.String()), v)
		require.NoError(t, err, "%s", text.String())
	}
	for line, rule := range spelledWrong {
		want := preprocessed(t, dir, line+"\n")
		for i := range level.Pick(6, 100) {
			text := s.line(line)
			if i < 3 {
				require.Equal(t, want, preprocessed(t, dir, text), "%s", text)
			}
			v := strict()
			v.gate["digraph"], v.gate["trigraph"] = Ignore, Ignore
			_, err := readText([]byte(text), v)
			r := (*Refusal)(nil)
			require.ErrorAs(t, err, &r, "%s", text)
			require.Equal(t, rule, r.Rule, "%s", text)
		}
	}
}
