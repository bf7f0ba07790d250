// Package suite_test tests the C suite, which must accept correct submissions and reject wrong ones. The wrong ones
// are in testdata/submissions/mutants.txt.
package suite_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/hangs"
	"llmmemory/internal/testkit/level"
)

const (
	root   = "../.."
	inFork = "    Sequence *parent = find(engine, parent_seq_id);\n"
)

var matrix = flag.Bool("matrix", false, "run every test on every mutant, and log those that fail")

// The flags of the handout's Compilation Standard.
var flags = []string{"-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2", "-ggdb"}

// objects are the object files of the suite, compiled once. objectsWithoutHeap lacks heap.o and is used under
// Memcheck.
var objects, objectsWithoutHeap []string

var scratch string

func TestMain(m *testing.M) {
	if flag.Parse(); testing.Short() {
		fmt.Println("not with -short: it compiles C")
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "suite")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	scratch = dir
	sources, _ := filepath.Glob("*.c")
	for _, source := range sources {
		object := filepath.Join(dir, strings.TrimSuffix(source, ".c")+".o")
		if out, err := gcc(append(quick("-O0"), "-I"+root, "-c", source, "-o", object)...); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n%s", source, err, out)
			return 1
		}
		objects = append(objects, object)
		if source != "heap.c" {
			objectsWithoutHeap = append(objectsWithoutHeap, object)
		}
	}
	return m.Run()
}

func gcc(args ...string) (string, error) {
	out, err := exec.Command("gcc", append(append([]string{}, flags...), args...)...).CombinedOutput()
	return string(out), err
}

func link(t *testing.T, source string, objects []string, options ...string) (program, diagnostics string, err error) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "llm_memory.c")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o644))
	program = filepath.Join(dir, "suite")
	diagnostics, err = gcc(append(append([]string{"-I" + root, file, "-o", program}, objects...), options...)...)
	return program, diagnostics, err
}

func build(t *testing.T, source string, objects []string, options ...string) string {
	t.Helper()
	program, diagnostics, err := link(t, source, objects, options...)
	require.NoError(t, err, "%s", diagnostics)
	return program
}

var correct struct {
	sync.Once
	program string
}

func buildCorrect(t *testing.T) string {
	t.Helper()
	correct.Do(func() {
		correct.program = filepath.Join(scratch, "correct")
		require.NoError(t, os.Rename(build(t, corpus.Correct(t), objects, quick("-O2")...), correct.program))
	})
	return correct.program
}

type result struct {
	status int
	stdout string
	stderr string
}

var (
	allPassed = regexp.MustCompile(`^[1-9]\d* passed, 0 failed(, \d+ skipped)?$`)
	someDid   = regexp.MustCompile(`^\d+ passed, [1-9]\d* failed(, \d+ skipped)?$`)
	failure   = regexp.MustCompile(`(?m)^FAIL (\w+)$`)
)

func (r result) last() string {
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	return lines[len(lines)-1]
}

func (r result) passed() bool { return r.status == 0 && allPassed.MatchString(r.last()) }

// failedCleanly reports whether the suite itself reported a failure, and did not crash.
func (r result) failedCleanly() bool { return r.status == 1 && someDid.MatchString(r.last()) }

func (r result) failures() []string {
	var names []string
	for _, match := range failure.FindAllStringSubmatch(r.stdout, -1) {
		names = append(names, match[1])
	}
	return names
}

func execute(t *testing.T, program string, args ...string) result {
	t.Helper()
	cmd := exec.Command(program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := hangs.Run(cmd)
	require.NotErrorIs(t, err, hangs.Err, "%s%s", stdout.String(), stderr.String())
	if _, exited := err.(*exec.ExitError); !exited {
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

func memcheck(t *testing.T, program string, args ...string) result {
	t.Helper()
	return execute(t, "valgrind", append([]string{"--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect,possible",
		"--error-exitcode=99", program, "--no-fork"}, args...)...)
}

func needValgrind(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("valgrind"); err != nil {
		t.Skip("valgrind is not installed")
	}
}

func TestCorrectSubmissionPasses(t *testing.T) {
	program := buildCorrect(t)
	r := execute(t, program, "--advice")
	require.True(t, r.passed(), "%s", r.stdout)
	require.NotContains(t, r.stdout, "ADVICE")
	require.NotContains(t, r.last(), "skipped")
	require.Empty(t, r.stderr)

	r = execute(t, program, "--no-fork", "--advice")
	require.True(t, r.passed(), "%s", r.stdout)
}

func TestTheLibraryPassesTheSuite(t *testing.T) {
	out, err := exec.Command("make", "-s", "-C", root, "lib").CombinedOutput()
	require.NoError(t, err, "%s", out)
	library, err := filepath.Abs(root + "/build")
	require.NoError(t, err)
	dir := t.TempDir()
	for _, heap := range []bool{true, false} {
		program := filepath.Join(dir, "suite")
		args := []string{"-o", program, "-L" + library, "-Wl,-rpath," + library}
		if heap {
			args = append(args, objects...)
		} else {
			args = append(args, objectsWithoutHeap...)
		}
		diagnostics, err := gcc(append(args, "-lllm_memory")...)
		require.NoError(t, err, "%s", diagnostics)
		r := execute(t, program, "--advice")
		require.True(t, r.passed(), "%s", r.stdout)
		require.NotContains(t, r.stdout, "ADVICE")
	}
}

// quick returns options with which compiling and linking take a third of the usual time. In make exhaustive and with
// -matrix it returns none, so that everything is compiled with the flags of the course.
func quick(optimise string) []string {
	if *matrix || level.Exhaustive() {
		return nil
	}
	options := []string{optimise, "-g0"}
	if _, err := exec.LookPath("ld.gold"); err == nil {
		options = append(options, "-fuse-ld=gold")
	}
	return options
}

func mutants(t *testing.T) []corpus.Mutant { return corpus.Mutants(t, "mutants.txt") }

func mutate(t *testing.T, m corpus.Mutant) string {
	t.Helper()
	source, err := m.Apply(corpus.Correct(t))
	require.NoError(t, err)
	return source
}

func TestTheSuiteCatchesMutants(t *testing.T) {
	level.SkipNormal(t)
	all := mutants(t)
	require.Greater(t, len(all), 110)
	if !*matrix && !level.Exhaustive() {
		all = corpus.Typical(all)
	}
	for _, m := range all {
		t.Run(m.ID, func(t *testing.T) {
			t.Parallel()
			check(t, m)
		})
	}
}

func check(t *testing.T, m corpus.Mutant) {
	switch m.Kind {
	case corpus.Equivalent:
		requirePasses(t, m)
	case corpus.Unseen: // some only because each test has a process of its own
		r := execute(t, buildMutant(t, m, true))
		require.True(t, r.passed(), "%s", r.stdout)
	case corpus.Memcheck:
		needValgrind(t)
		r := memcheck(t, buildMutant(t, m, false), level.Pick([]string{"--only", "task2"}, nil)...)
		require.Equal(t, 99, r.status, "%s%s", r.stdout, r.stderr)
	case corpus.Rejected:
		program, diagnostics, err := link(t, mutate(t, m), objects)
		if err == nil {
			fails(t, m, program)
			return
		}
		require.Contains(t, diagnostics, "-Werror")
	default:
		fails(t, m, buildMutant(t, m, true))
	}
}

// requirePasses requires that a mutant passes. Except in make exhaustive, all tests of the suite run in one process, because
// forking a process for each test takes ten times as long as the tests.
func requirePasses(t *testing.T, m corpus.Mutant) {
	t.Helper()
	r := execute(t, buildMutant(t, m, true), level.Pick([]string{"--no-fork"}, nil)...)
	require.True(t, r.passed(), "%s", r.stdout)
}

// fails requires that a mutant fails the test in m.Expect. It runs only this test, except with -matrix.
func fails(t *testing.T, m corpus.Mutant, program string) {
	args := []string{"--seconds", "2"}
	if m.Expect != "" && !*matrix {
		args = append(args, "--only", m.Expect)
	}
	r := execute(t, program, args...)
	require.True(t, r.failedCleanly(), "status %d, %s", r.status, r.last())
	if m.Expect != "" {
		require.Contains(t, r.failures(), m.Expect)
	}
	t.Logf("%s: %s", m.ID, strings.Join(r.failures(), " "))
}

func TestSubmissionsThatCrashOrExitAreReported(t *testing.T) {
	const says = "printf(\"\\n999 passed, 0 failed\\n\");\n fflush(stdout);\n"
	cases := []struct{ name, inFork, atEnd, report string }{
		{"crashes", "int *volatile nowhere = NULL; *nowhere = 1;", "", "crashed: killed by signal 11 (Segmentation fault)"},
		{"aborts", "abort();", "", "crashed: killed by signal 6 (Aborted)"},
		{"exits", "exit(0);", "", "exited by itself: an API call ended the program with status 0"},
		{"exits past atexit", "_Exit(0);", "", "exited by itself: an API call ended the program with status 0"},
		{"says it passed", says + "return NULL;", "", "fork_sequence(engine, 1, 2) returned NULL"},
		{"says it passed and exits", says + "exit(0);", "", "exited by itself"},
		{"says it passed when all is over", "return NULL;", says + "_Exit(0);", "fork_sequence(engine, 1, 2) returned NULL"},
	}
	// All cases are compiled into one program. The program takes the number of the case to run from the name under
	// which it is started, so each case starts it through a link with its own name.
	var inForks, atEnds strings.Builder
	for i, c := range cases {
		fmt.Fprintf(&inForks, "case %d: {\n%s\nbreak;\n}\n", i, c.inFork)
		fmt.Fprintf(&atEnds, "case %d: {\n%s\nbreak;\n}\n", i, c.atEnd)
	}
	program := build(t, "#include <stdio.h>\nstatic int mine = -1;\n"+corpus.Changed(t, inFork, "switch (mine) {\n"+inForks.String()+"}\n"+inFork)+
		"__attribute__((constructor)) static void at_start(int argc, char **argv) {\n"+
		"mine = argc > 0 ? atoi(strrchr(argv[0], '/') + 1) : -1;\n}\n"+
		"__attribute__((destructor)) static void at_end(void) {\nswitch (mine) {\n"+atEnds.String()+"}\n}\n",
		objects, quick("-O0")...)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			named := filepath.Join(t.TempDir(), strconv.Itoa(i))
			require.NoError(t, os.Link(program, named))
			r := execute(t, named, "--seconds", "1", "--only", "task3_t")
			require.True(t, r.failedCleanly(), "status %d\n%s", r.status, r.stdout)
			require.Contains(t, r.stdout, "FAIL task3_takes_no_block\n  handout: To save memory,")
			require.Contains(t, r.stdout, c.report)
			require.NotContains(t, r.stdout, "999")
		})
	}
}

// Ensure that the suite stops after three timeouts. To save time, a call really loops only in the first test of task3,
// with a pool of 10 blocks. In the other tests the call raises SIGPROF. The suite uses this signal to end a call that
// takes too long.
func TestGivesUpAfterThreeTimeouts(t *testing.T) {
	t.Parallel()
	loops := corpus.Changed(t, inFork, "for (volatile int loops = engine->total_local_blocks == 10; loops;) {\n}\nraise(SIGPROF);\n"+inFork)
	program := build(t, "#include <signal.h>\n"+loops, objects, quick("-O0")...)
	r := execute(t, program, "--seconds", "1", "--only", "task3")
	require.True(t, r.failedCleanly(), "%s", r.stdout)
	require.Equal(t, 3, strings.Count(r.stdout, "timed out: a call did not return within 1 seconds"))
	require.Contains(t, r.last(), "0 passed, 3 failed, ")
}

// A waiting call uses almost no processor time.
func TestACallThatWaitsIsEnded(t *testing.T) {
	if !level.Exhaustive() {
		t.Skip("only in make exhaustive: it is waited for")
	}
	for _, waits := range []string{"pause();", "for (;;) {\nusleep(100000);\n}\n"} {
		t.Run(waits, func(t *testing.T) {
			t.Parallel()
			source := "#define _DEFAULT_SOURCE\n#include <unistd.h>\n" + corpus.Changed(t, inFork, waits+inFork)
			r := execute(t, build(t, source, objects, quick("-O0")...), "--seconds", "1", "--only", "task3_t")
			require.True(t, r.failedCleanly(), "%s", r.stdout)
			require.Contains(t, r.stdout, "timed out: a call did not return within 20 seconds: it waits for something")
		})
	}
}

func TestExitBeforeMainDoesNotPass(t *testing.T) {
	source := corpus.Correct(t) +
		"\n__attribute__((constructor)) static void first(void) {\n    _Exit(0);\n}\n"
	r := execute(t, build(t, source, objects, quick("-O0")...))
	require.False(t, r.passed())
	require.Empty(t, r.stdout)
}

func TestTheSuitesOptionsDoWhatTheySay(t *testing.T) {
	program := buildCorrect(t)

	list := execute(t, program, "--list")
	require.Zero(t, list.status)
	lines := strings.Split(strings.TrimSpace(list.stdout), "\n")
	require.Greater(t, len(lines), 300)
	for i := 0; i < len(lines); i += 2 {
		require.Regexp(t, `^[a-z0-9_]+$`, lines[i])
		require.Regexp(t, `^    \S.{8,}$`, lines[i+1], "the sentence of %s", lines[i])
	}

	r := execute(t, program, "--only", "task2_refuses_length_zero", "-v")
	require.Equal(t, "ok   task2_refuses_length_zero\n1 passed, 0 failed\n", r.stdout)
	r = execute(t, program, "--only", "cow")
	require.Regexp(t, `^1\d passed, 0 failed\n$`, r.stdout)
	require.Equal(t, 2, execute(t, program, "--only", "nonsense").status)
	require.Equal(t, 2, execute(t, program, "--nonsense").status)
	require.Contains(t, execute(t, program, "--help").stdout, "--no-fork")
}

func TestHeapTestsAreSkippedWithoutHeap(t *testing.T) {
	t.Parallel()
	r := execute(t, build(t, corpus.Correct(t), objectsWithoutHeap, quick("-O0")...))
	require.True(t, r.passed())
	require.Contains(t, r.last(), "skipped")
}

// Ensure that the suite's hash table of allocated blocks finds each block. Meanwhile malloc and free add and remove
// other blocks in the same chain of the table.
func TestTheHeapKnowsEveryBlockWhileOthersComeAndGo(t *testing.T) {
	program := filepath.Join(t.TempDir(), "churn")
	diagnostics, err := gcc(append(quick("-O0"), "-fno-builtin", "-I.", "testdata/churn.c", "heap.c", "-o", program)...)
	require.NoError(t, err, "%s", diagnostics)
	require.NoError(t, exec.Command(program).Run())
}
