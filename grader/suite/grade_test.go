package suite_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

// makeSubmission runs `make SUBMISSION=...` as a user does. It returns the verdict and the output.
func makeSubmission(t *testing.T, source string) (accepted bool, printed string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "llm_memory.c")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o644))
	cmd := exec.Command("make", "-s", "-C", root, "SUBMISSION="+file)
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "MAKE") && !strings.HasPrefix(entry, "MFLAGS") {
			cmd.Env = append(cmd.Env, entry)
		}
	}
	out, err := cmd.CombinedOutput()
	return err == nil, string(out)
}

// Ensure that make judges correct and wrong submissions, also when several shells run it at the same time.
func TestMakeJudgesSubmissions(t *testing.T) {
	needValgrind(t)
	const initBody = "    LLMEngine *engine = malloc(sizeof *engine);\n"
	keeps := corpus.Changed(t, initBody, "    static void *kept;\n    kept = kept != NULL ? kept : malloc(1);\n"+initBody)
	for _, c := range []struct {
		name, source string
		accepted     bool
		says         string
		long         bool // other tests hold the same of the suite, or of Valgrind
	}{
		{"correct", corpus.Correct(t), true, "does everything the handout asks for", false},
		{"keeps a block to the end", keeps, false, "0 bytes lost, 1 blocks never freed", true},
		{"not C", "int main(", false, "not with the flags of the course", false},
		{"with a constructor", corpus.Correct(t) +
			"#include <stdio.h>\n__attribute__((constructor)) static void first(void) {\n" +
			"    puts(\"181 passed, 0 failed\");\n    fflush(stdout);\n    _Exit(0);\n}\n", false, "runs outside the six calls", true},
	} {
		if c.long && !level.Exhaustive() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			accepted, printed := makeSubmission(t, c.source)
			require.Equal(t, c.accepted, accepted, printed)
			require.Contains(t, printed, c.says)
		})
	}
}

// Ensure that the script grade resolves a relative path in its caller's folder. If the file is missing, the error must
// name it.
func TestGradeTakesWhatItsCallerNames(t *testing.T) {
	level.SkipQuick(t) // it compiles
	script, err := filepath.Abs(filepath.Join(root, "grader", "grade"))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine.c"), []byte("int main("), 0o644))
	for _, c := range []struct{ name, argument, says string }{
		{"a file beside the caller", "mine.c", "not with the flags of the course"},
		{"no file", "yours.c", "yours.c does not exist"},
		{"a folder", ".", "is not a file: name the llm_memory.c itself"},
		{"a flag", "--help", "usage: grader/grade [llm_memory.c]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(script, c.argument)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), c.says)
		})
	}
}
