package gradescope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade/judging/rules"
	"llmmemory/internal/homework/grade/reporting/class"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

// TestMain makes one folder for all temporary files and removes it at the end, because graders that are killed do not
// remove their files. The permissions of the folder let submissions that run as other users enter it. In the
// containers of the tests, the test program runs again and acts as llmgrade.
func TestMain(m *testing.M) {
	rules.Serve()
	if len(os.Args) == 2 && strings.HasPrefix(os.Args[1], "--gradescope=") {
		if err := Run(strings.TrimPrefix(os.Args[1], "--gradescope="), os.Stdout); err != nil {
			os.Exit(2)
		}
		return
	}
	dir, err := os.MkdirTemp("", "llmgrade-test-")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o711), os.Setenv("TMPDIR", dir))
	}
	if err != nil {
		panic(err)
	}
	remove := level.CheapCompiler("-O0")
	status := m.Run()
	remove()
	_ = os.RemoveAll(dir)
	os.Exit(status)
}

var static = sync.OnceValue(func() []byte {
	program := filepath.Join(os.TempDir(), "static")
	cmd := exec.Command("gcc", "-static", "-x", "c", "-", "-o", program)
	cmd.Stdin = strings.NewReader("int main(void) { return 0; }")
	out, err := cmd.CombinedOutput()
	if err != nil {
		panic(fmt.Sprintf("%v: %s", err, out))
	}
	text, err := os.ReadFile(program)
	if err != nil {
		panic(err)
	}
	return text
})

// lay writes files into a folder. A name that ends in a slash is an empty folder.
func lay(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(file, 0o755))
			continue
		}
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
}

const tries = "    FILE *f = fopen(\"results/results.json\", \"w\");\n    if (f) {\n        fputs(\"{\\\"score\\\": 1000}\", f);\n        fclose(f);\n    }\n"

func TestTheAutograderWritesGradescopesResults(t *testing.T) {
	t.Parallel()
	points := []byte(`{"tasks": [1, 2.5, 3, 4, 3.33], "directed": 50, "hidden": 30, "memory": 20}`)
	for _, c := range []struct {
		name   string
		files  map[string]string
		staff  []byte // points.json; nil: the default
		points float64
		check  func(*testing.T, Results)
	}{
		{"does not compile", map[string]string{class.Wanted: "int x = ;\n"}, nil, 100, func(t *testing.T, r Results) {
			require.Zero(t, r.Score)
			require.Contains(t, r.Tests[0].Output, "llm_memory.c does not compile with the flags of the course")
			require.Contains(t, r.Tests[0].Output, "llm_memory.c:1:9: error")
			require.NotContains(t, r.Tests[0].Output, os.TempDir())
			require.False(t, r.Extra.Counts)
		}},
		{"missing", map[string]string{"notes.txt": ""}, points, 13.83, func(t *testing.T, r Results) {
			require.Zero(t, r.Score)
			require.Contains(t, r.Tests[0].Output, `the upload has "notes.txt"`)
			require.False(t, r.Extra.Counts)
		}},
		{"ends the process, for the points of the staff", map[string]string{"hw/" + class.Wanted: corpus.Changed(t, "    unlink_node(seq);\n", "    exit(0);\n    unlink_node(seq);\n")}, points, 13.83, func(t *testing.T, r Results) {
			require.Greater(t, r.Score, 0.0)
			require.Less(t, r.Score, 13.83)
			require.Contains(t, r.Output, `"hw/llm_memory.c"`)
			require.Contains(t, r.Output, "visible tests failed")
			i := slices.IndexFunc(r.Tests, func(test Test) bool {
				return test.Status == Failed && strings.Contains(test.Output, "expected: ")
			})
			require.GreaterOrEqual(t, i, 0)
			require.Regexp(t, `^2\.\d+$`, r.Tests[i].Number)
			require.Contains(t, r.Tests[i].Output, "free_sequence(e[0]")
			require.Contains(t, r.Tests[i].Output, "the process ended with exit status 0")
			require.True(t, r.Extra.Counts)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := container(t, Package{Points: c.staff}, c.files)
			require.Contains(t, grading(t, dir), "llmgrade ended with status 0")
			c.check(t, read(t, dir, c.points))
			nobodyWrites(t, filepath.Join(dir, "results"))
		})
	}
}

func nobodyWrites(t *testing.T, dir string) {
	t.Helper()
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Zero(t, info.Mode().Perm()&0o022)
	if os.Getuid() != 0 {
		return
	}
	for _, command := range []string{"echo 1 >results.json", "rm -f results.json", "echo 1 >x && mv x results.json"} {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		const nobody = 65534 // as in grader/process/launch.c
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		require.Error(t, cmd.Run(), command)
	}
}

// Ensure that a hidden trace is shown only in a hidden test, even if a submission tries to write its own results.
func TestOnlyAHiddenTestTellsOfAHiddenTrace(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	right := corpus.Changed(t, "    unlink_node(seq);\n", "    unlink_node(seq);\n"+tries)
	right = strings.Replace(right, "#include <limits.h>", "#include <limits.h>\n#include <stdio.h>", 1)
	const head = "int append_kv(LLMEngine *engine, int seq_id, int kv_data) {\n    if (engine == NULL"
	late := strings.Replace(right, head, head+" || (kv_data & 0x7f000000) == 0x5b000000", 1)
	require.NotEqual(t, right, late)
	var shown []string
	for _, text := range []string{right, late} {
		dir := container(t, Package{}, map[string]string{class.Wanted: text})
		grading(t, dir)
		r := read(t, dir, 100)
		require.True(t, r.Extra.Counts)
		require.NotEmpty(t, r.Extra.Versions.GCC)
		require.NotEmpty(t, r.Extra.Versions.Linker)
		require.NotEmpty(t, r.Extra.Stages)
		require.Contains(t, r.Extra.Sandbox, "no_new_privs")
		require.NotZero(t, r.Extra.Seed)
		require.Contains(t, r.Output, "The visible tests passed; 5 hidden tests are shown after the due date.\n")
		require.Contains(t, r.Output, "Advice, which costs nothing: gate_refused\nllm_memory.c:178: it uses fopen")
		for _, test := range r.Tests {
			require.Equal(t, strings.HasSuffix(test.Name, "_hidden_traces"), test.Visibility == AfterDueDate, test.Name)
			if test.Visibility == AfterDueDate && test.Number[0] == '4' && text == late {
				require.Equal(t, Failed, test.Status)
				require.Contains(t, test.Output, "expected: ")
			} else {
				require.Equal(t, Passed, test.Status, test.Name)
			}
		}
		require.Equal(t, text == late, r.Score < 100)
		r.Tests = slices.DeleteFunc(r.Tests, func(test Test) bool { return test.Visibility != Visible })
		tests, err := json.MarshalIndent(r.Tests, "", " ")
		require.NoError(t, err)
		shown = append(shown, r.Output+string(tests))
	}
	require.Equal(t, shown[0], shown[1])
}

func TestTroubleIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ file, text, says string }{
		"points":         {"points.json", `{"tasks": []}`, "points.json: not a points file"},
		"config":         {"config.json", `{"ratelimit": ""}`, "config.json: "},
		"limit":          {"config.json", `{"rate_limit": "often"}`, "not a rate limit"},
		"not a program":  {"llmgrade", "#!/nonexistent\n", "llmgrade ended with status 12"},
		"program failed": {"llmgrade", "#!/bin/sh\nexit 2\n", "llmgrade ended with status 2"},
	} {
		dir := container(t, Package{}, map[string]string{class.Wanted: corpus.Correct(t)})
		require.NoError(t, os.WriteFile(filepath.Join(dir, "source", c.file), []byte(c.text), 0o644))
		lay(t, dir, map[string]string{"results/results.json": `{"score": 99}`}) // of a run before
		require.Contains(t, grading(t, dir), c.says, name)
		r := read(t, dir, 100)
		require.Zero(t, r.Score)
		require.Empty(t, r.Tests)
		require.Contains(t, r.Output, "Your file was not graded, because the autograder failed.", name)
		require.Contains(t, r.Output, "Please tell the staff", name)
		require.NotContains(t, r.Output, "json", "nothing of ours to students")
		require.False(t, r.Extra.Counts)
	}
}

func hangs(t *testing.T) string {
	return corpus.Changed(t, "    unlink_node(seq);\n", "    for (volatile int i = 1; i;) {\n    }\n    unlink_node(seq);\n")
}

func TestAGraderThatIsKilledLeavesThePlaceholder(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	dir := container(t, Package{}, map[string]string{class.Wanted: hangs(t)})
	cmd := exec.Command(filepath.Join(dir, "run_autograder"))
	temp, err := os.MkdirTemp("", "llmgrade-killed-") // not the test's own, which other users cannot enter
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	require.NoError(t, os.Chmod(temp, 0o711))
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	require.NoError(t, cmd.Start())
	self, err := os.Executable()
	require.NoError(t, err)
	var grader []int
	for range 60_000 { // ten minutes
		grader = processes(t, self, "--gradescope="+dir)
		if len(grader) == 1 && len(processes(t, temp, "")) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	require.Len(t, grader, 1)
	require.NoError(t, syscall.Kill(grader[0], syscall.SIGKILL))
	require.NoError(t, cmd.Wait(), log.String())
	require.Contains(t, log.String(), "llmgrade ended with status 137")
	r := read(t, dir, 100)
	require.Zero(t, r.Score)
	require.Equal(t, unfinished, r.Output)
	require.False(t, r.Extra.Counts)
	require.Eventually(t, func() bool { return len(processes(t, temp, "")) == 0 }, 10*time.Minute, 20*time.Millisecond,
		"the submission ends with the grader")
}

// processes returns the ids of all processes with a certain program path and argument: the path begins with program,
// and one argument begins with argument.
func processes(t *testing.T, program, argument string) (pids []int) {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/exe")
	require.NoError(t, err)
	for _, name := range names {
		exe, err := os.Readlink(name)
		arguments, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "cmdline"))
		if err == nil && strings.HasPrefix(exe, program) && bytes.Contains(arguments, []byte("\x00"+argument)) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestARunThatTakesTooLongIsEnded(t *testing.T) {
	t.Parallel()
	dir := container(t, Package{}, map[string]string{class.Wanted: hangs(t)})
	script := strings.Replace(string(runAutograder), "\nlimit=540\n", "\nlimit=1\n", 1)
	require.NotEqual(t, string(runAutograder), script)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run_autograder"), []byte(script), 0o755))
	require.Contains(t, grading(t, dir), "llmgrade ended with status 124")
	require.Equal(t, unfinished, read(t, dir, 100).Output)
}

func TestTheFolderOfTheResultsIsOurs(t *testing.T) {
	dir := t.TempDir()
	for before, after := range map[fs.FileMode]fs.FileMode{0o777: 0o755, 0o770: 0o750, 0o700: 0o700} {
		require.NoError(t, os.Chmod(dir, before))
		require.NoError(t, protect(dir))
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.Equal(t, after, info.Mode().Perm())
	}
}

// Ensure that Run replaces the results file if it is a link, and does not change the target of the link.
func TestTheResultsFollowNoLink(t *testing.T) {
	dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "victim")
	require.NoError(t, os.WriteFile(elsewhere, []byte("as it was"), 0o644))
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, "results.json")))
	require.NoError(t, write(dir, newResults("ours")))
	text, err := os.ReadFile(elsewhere)
	require.NoError(t, err)
	require.Equal(t, "as it was", string(text))
	require.ErrorIs(t, write("/nonexistent", newResults("")), fs.ErrNotExist)
}
