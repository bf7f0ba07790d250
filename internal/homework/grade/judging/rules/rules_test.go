package rules_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade/judging/rules"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

func TestMain(m *testing.M) {
	rules.Serve()
	os.Exit(m.Run())
}

// check returns the breaches of a source, as values and as text: "RULE LINE" or "RULE LINE advice".
func check(t *testing.T, source string) (breaches []rules.Breach, all []string) {
	t.Helper()
	breaches, err := rules.CheckHere([]byte(source))
	require.NoError(t, err)
	for _, b := range breaches {
		require.NotEmpty(t, b.Sentence)
		require.Contains(t, b.Message, fmt.Sprint(b.Line))
		require.Contains(t, source, b.Function)
		all = append(all, finding(b.Rule, b.Line, b.Advice))
	}
	slices.Sort(all)
	return breaches, all
}

func finding(rule string, line int, advice bool) string {
	if advice {
		return fmt.Sprintf("%s %d advice", rule, line)
	}
	return fmt.Sprintf("%s %d", rule, line)
}

// before is the text before each source of the tests. It declares what the sources need from headers, because parsing
// the headers takes long.
const before = "#include \"llm_memory.h\"\nvoid free(void *p), *malloc(size_t n), *calloc(size_t n, size_t size);\n" +
	"void *memset(void *to, int byte, size_t n), *memcpy(void *to, const void *from, size_t n);\n"

func fragments(t *testing.T) map[string]string {
	t.Helper()
	sources := map[string]string{}
	texts, err := os.ReadFile("testdata/texts.txt")
	require.NoError(t, err)
	_, all, _ := strings.Cut(string(texts), "\n== ")
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

func TestTheFragmentsAreC(t *testing.T) {
	if !level.Exhaustive() {
		t.Skip("only in make exhaustive: the texts do not change")
	}
	dir := t.TempDir()
	args := []string{"-std=c11", "-fsyntax-only", "-I../../../../.."}
	for name, source := range fragments(t) {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", " ")+".c")
		require.NoError(t, os.WriteFile(file, []byte(source), 0o644))
		args = append(args, file)
	}
	out, err := exec.Command("gcc", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestExactlyTheMarkedLinesAreReported(t *testing.T) {
	for name, source := range fragments(t) {
		t.Run(name, func(t *testing.T) {
			var want []string
			for i, line := range strings.Split(source, "\n") {
				if _, mark, marked := strings.Cut(line, "// "); marked {
					want = append(want, finding(mark[1:], i+1, mark[0] == '?'))
				}
			}
			slices.Sort(want)
			_, found := check(t, source)
			require.Equal(t, want, found, "%s", source)
		})
	}
}

// ofMutants maps each mutant to the rule that it breaks. A ? after the rule means that the student gets only advice. A
// mutant that is not in the map breaks no rule.
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

// Ensure that each mutant breaks exactly its rules (ofMutants). Correct variants may get advice, but break no rule.
func TestMutantsBreakTheRulesTheyName(t *testing.T) {
	level.SkipQuick(t)
	seen := 0
	for i, m := range append(corpus.Mutants(t, "mutants.txt"), corpus.Mutant{ID: "correct", Kind: corpus.Equivalent}) {
		want, breaks := ofMutants[m.ID]
		if !breaks && i%level.Pick(40, 1) != 0 {
			continue
		}
		source, err := m.Apply(corpus.Correct(t))
		require.NoError(t, err)
		breaches, _ := check(t, source)
		var said []string
		for _, b := range breaches {
			require.False(t, m.Kind == corpus.Equivalent && !b.Advice, "%s is right: %+v", m.ID, b)
			said = append(said, b.Rule+map[bool]string{true: "?"}[b.Advice])
		}
		require.Equal(t, want, strings.Join(said, " "), "%s: %s", m.ID, m.What)
		if breaks {
			seen++
		}
		if m.ID == "F13" {
			apart, err := rules.Check([]byte(source))
			require.NoError(t, err)
			require.Equal(t, breaches, apart)
		}
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
		breaches, _ := check(t, before+head+"{ if ("+pool+" == 0) return 0; free("+pool+"); return 0; }\n")
		require.NotEmpty(t, breaches)
		for _, b := range breaches {
			require.Equal(t, task, b.Task, "%+v", b)
		}
	}
}

// Ensure that an unparsable source gives ErrUnread: it costs no points and does not stop the grader.
func TestUnreadableTextIsNotHeldAgainstASubmission(t *testing.T) {
	level.SkipNormal(t)
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
	if !level.Exhaustive() { // the bomb and the variables end at the same limits
		delete(sources, "itself")
		delete(sources, "100,000 parentheses")
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breaches, err := rules.Check([]byte(source))
			require.ErrorIs(t, err, rules.ErrUnread)
			require.Empty(t, breaches)
			require.Less(t, len(err.Error()), 1000)
		})
	}
}

func TestAtMost50BreachesAreReported(t *testing.T) {
	breaches, _ := check(t, before+"int llm_destroy(LLMEngine *engine) {\nif (!engine) return -1;\n"+
		strings.Repeat("free(engine->pool_base_ptr);\n", 5000)+"return 0; }\n")
	require.Len(t, breaches, 50)
}
