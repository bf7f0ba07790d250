package rules_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/grade/rules"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

const (
	root        = "../../../"
	submissions = root + "testdata/submissions/"
)

func TestMain(m *testing.M) {
	rules.Serve()
	os.Exit(m.Run())
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// found returns the breaches as "RULE LINE" and "RULE LINE advice".
func found(t *testing.T, source string) []string {
	t.Helper()
	breaches, err := rules.Check([]byte(source))
	require.NoError(t, err)
	var all []string
	for _, b := range breaches {
		require.NotEmpty(t, b.Sentence)
		require.NotEmpty(t, b.Message)
		require.Contains(t, b.Message, fmt.Sprint(b.Line))
		require.Contains(t, source, b.Function)
		all = append(all, finding(b.Rule, b.Line, b.Advice))
	}
	slices.Sort(all)
	return all
}

func finding(rule string, line int, advice bool) string {
	if advice {
		return fmt.Sprintf("%s %d advice", rule, line)
	}
	return fmt.Sprintf("%s %d", rule, line)
}

const before = "#include \"llm_memory.h\"\n#include <stdlib.h>\n#include <string.h>\n"

// fragments are the texts of testdata/texts.txt, by name.
func fragments(t *testing.T) map[string]string {
	t.Helper()
	sources := map[string]string{}
	_, all, _ := strings.Cut(read(t, "testdata/texts.txt"), "\n== ")
	for section := range strings.SplitSeq(all, "\n== ") {
		name, text, _ := strings.Cut(section, "\n")
		source := before
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "# ") { // between the fragments
				source += line
			}
		}
		require.NotContains(t, sources, name)
		sources[name] = source
	}
	return sources
}

// Ensure that the compiler accepts each fragment.
func TestTheFragmentsAreC(t *testing.T) {
	level.SkipQuick(t)
	dir := t.TempDir()
	args := []string{"-std=c11", "-fsyntax-only", "-I" + root}
	for name, source := range fragments(t) {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", " ")+".c")
		require.NoError(t, os.WriteFile(file, []byte(source), 0o644))
		args = append(args, file)
	}
	out, err := exec.Command("gcc", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Ensure that exactly the marked lines of each fragment are reported.
func TestExactlyTheMarkedLinesAreReported(t *testing.T) {
	for name, source := range fragments(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want []string
			for i, line := range strings.Split(source, "\n") {
				if _, mark, marked := strings.Cut(line, "// "); marked {
					want = append(want, finding(mark[1:], i+1, mark[0] == '?'))
				}
			}
			slices.Sort(want)
			require.Equal(t, want, found(t, source), "%s", source)
		})
	}
}

// What the rules report of each mutant: the rule, and ? for advice. Mutants that are not here
// have no breach.
var ofMutants = map[string]string{
	"C1": "null_check_first", "R20": "null_check_first", "R26": "null_check_first", "A28": "null_check_first", "D8": "null_check_first",
	"X3": "null_check_first?", // prints first
	"I9": "memset_pool", "C21": "memset_pool", "D11": "memset_pool", "F15": "memset_pool?",
	"D1": "free_pool",
	"F1": "l1_break", "F1b": "l1_break", "K7": "l1_break?",
	"F18": "l2_break?", "R28": "l2_break?",
	"F13": "l1_all_slots?", "F13b": "l1_all_slots?", "F19": "l1_all_slots?",
	"L1": "node_cast",
}

var list = flag.Bool("list", false, "print what the rules say of each mutant")

func TestMutantsBreakTheRulesTheyName(t *testing.T) {
	level.SkipQuick(t)
	correct := read(t, submissions+"correct/llm_memory.c")
	mutants, err := corpus.Parse(read(t, submissions+"mutants.txt"))
	require.NoError(t, err)
	mutants = append(mutants, corpus.Mutant{ID: "correct", Kind: corpus.Equivalent})
	seen := 0
	for i, m := range mutants {
		if _, breaks := ofMutants[m.ID]; !breaks && i%level.Pick(10, 1) != 0 {
			continue
		}
		source, err := m.Apply(correct)
		require.NoError(t, err)
		breaches, err := rules.Check([]byte(source))
		require.NoError(t, err, m.ID)
		var said []string
		for _, b := range breaches {
			if *list {
				t.Logf("%s: %s: %+v", m.ID, m.What, b)
			}
			require.False(t, m.Kind == corpus.Equivalent && !b.Advice, "%s is right: %+v", m.ID, b)
			rule := b.Rule
			if b.Advice {
				rule += "?"
			}
			said = append(said, rule)
		}
		if len(said) > 0 {
			seen++
		}
		require.Equal(t, ofMutants[m.ID], strings.Join(said, " "), "%s: %s", m.ID, m.What)
	}
	require.Equal(t, len(ofMutants), seen, "mutants that are not in the table")
}

func TestABreachBelongsToItsFunctionsTask(t *testing.T) {
	for task, head := range map[int]string{
		1: "LLMEngine *llm_init(void *pool_addr, size_t pool_size)",
		2: "Sequence *create_sequence(LLMEngine *engine, int seq_id, int initial_kv_len)",
		3: "Sequence *fork_sequence(LLMEngine *engine, int parent_seq_id, int new_seq_id)",
		4: "int append_kv(LLMEngine *engine, int seq_id, int kv_data)",
		5: "int llm_destroy(LLMEngine *engine)",
	} {
		pool := "engine->pool_base_ptr"
		if task == 1 {
			pool = "pool_addr"
		}
		breaches, err := rules.Check([]byte(before + head + "{ if (" + pool + " == 0) return 0; free(" + pool + "); return 0; }\n"))
		require.NoError(t, err)
		require.NotEmpty(t, breaches)
		for _, b := range breaches {
			require.Equal(t, task, b.Task, "%+v", b)
		}
	}
}

// Ensure that a text which cannot be parsed costs nothing and does not end the grader.
func TestUnreadableTextIsNotHeldAgainstASubmission(t *testing.T) {
	level.SkipQuick(t) // it uses up the limits
	var bomb strings.Builder
	bomb.WriteString("#define A0 1\n")
	for i := range 40 {
		fmt.Fprintf(&bomb, "#define A%d A%d + A%d\n", i+1, i, i)
	}
	bomb.WriteString("int x = A40;\n")
	doubling := "static void *p0;\n"
	for i := range 60 {
		doubling += fmt.Sprintf("static char *p%d;\n", i+1)
	}
	doubling += "LLMEngine *llm_init(void *pool_addr, size_t pool_size) {\n"
	for i := range 60 {
		doubling += fmt.Sprintf("p%d = p%d ? (char *)p%d : (char *)p%d;\n", i+1, i, i, i)
	}
	doubling += "memset(p60, 0, 1); return NULL; }\n"
	sources := map[string]string{
		"not C":                    "int (",
		"an include of nothing":    "#include \"grader.h\"\n",
		"another file":             "#include \"/etc/passwd\"\n",
		"a file above the headers": "#include <../../etc/passwd>\n",
		"itself":                   "#include \"llm_memory.c\"\n",
		"100,000 parentheses":      "int x = " + strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000) + ";\n",
		"a macro bomb":             bomb.String(),
		"variables without an end": before + doubling,
	}
	if !level.Long() { // the bomb and the variables end at the same limits
		delete(sources, "itself")
		delete(sources, "100,000 parentheses")
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			breaches, err := rules.Check([]byte(source))
			t.Logf("%v: %v", time.Since(begin).Round(time.Millisecond), err)
			require.ErrorIs(t, err, rules.ErrUnread)
			require.Empty(t, breaches)
			require.Less(t, len(err.Error()), 1000)
		})
	}
}

func TestAtMost50BreachesAreReported(t *testing.T) {
	breaches, err := rules.Check([]byte(before + "int llm_destroy(LLMEngine *engine) {\nif (!engine) return -1;\n" +
		strings.Repeat("free(engine->pool_base_ptr);\n", 5000) + "return 0; }\n"))
	require.NoError(t, err)
	require.Len(t, breaches, 50)
}

func BenchmarkCheck(b *testing.B) {
	source := []byte(read(b, submissions+"correct/llm_memory.c"))
	for b.Loop() {
		_, err := rules.Check(source)
		require.NoError(b, err)
	}
}
