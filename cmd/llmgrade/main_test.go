package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade/judging/rules"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

// TestMain runs llmgrade itself if a test asks for it.
func TestMain(m *testing.M) {
	rules.Serve()
	if os.Getenv("BE_LLMGRADE") != "" {
		main()
		return
	}
	remove := level.CheapCompiler("-O0")
	status := m.Run()
	remove()
	os.Exit(status)
}

func run(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "BE_LLMGRADE=1")
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}

func put(t *testing.T, dir, name, before, after string) string {
	t.Helper()
	level.SkipQuick(t)
	return write(t, filepath.Join(dir, name), corpus.Changed(t, before, after))
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// Ensure that a correct file gets full points even if the umask hides it from other users: as root, the grader runs
// submissions as another user. Also ensure this for a file with the name of a command.
func TestARightSubmissionGetsItsPoints(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `umask 077 && exec "$0" "$@"`, os.Args[0], "--seed", "7", "--only", "task1_accepts", put(t, t.TempDir(), "gradescope", "", ""))
	cmd.Env = append(os.Environ(), "BE_LLMGRADE=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "; seed 7; ")
	require.Contains(t, string(out), "gradescope: 14.0 of 14 points\n")
}

func TestWhatIsNotRunSaysWhy(t *testing.T) {
	t.Parallel()
	const first = "#include <limits.h>\n"
	class := t.TempDir()
	cases := []struct{ name, text, failed, says string }{
		{"constructor", "__attribute__((constructor)) static void first(void) {\n    static volatile int ran;\n    if (ran == 0) {\n        ran = 1;\n    }\n}\n", "gate", "constructor.c is not run: llm_memory.c:9: the attribute constructor is not for a homework: take it out"},
		{"kernel", "static long run(void) {\n    long n = 39;\n    __asm__ volatile(\"syscall\" : \"+a\"(n) : : \"rcx\", \"r11\", \"memory\");\n    return n;\n}\nstatic long (*volatile runner)(void) = run;\nstatic long use(void) {\n    return runner();\n}\nstatic long (*volatile user)(void) __attribute__((used)) = use;\n", "gate", "kernel.c is not run: llm_memory.c:11: __asm__ is assembly code: write C"},
		{"syntax", "int x = ;\n", "compile", "\nllm_memory.c:9:9: error: expected expression"},
		{"system", "#include <stdlib.h>\nstatic int run(void) { return system(\"true\"); }\nint (*volatile runner)(void) = run;\n", "gate", "it uses system"},
		{"warning", "static int unused;\n", "compile", "unused"},
	}
	for _, c := range cases {
		put(t, class, c.name+".c", first, first+c.text)
	}
	status, out, _ := run(t, class)
	require.Equal(t, 1, status)
	status, lines, _ := run(t, "--json", class)
	require.Equal(t, 1, status)
	for i, c := range cases {
		require.Contains(t, out, c.name+".c: 0.0 of 100 points\n")
		require.Contains(t, out, c.says)
		require.Contains(t, strings.Split(lines, "\n")[i], `"failed":["`+c.failed+`"]`, c.name)
	}
}

func TestAFindingIsPrintedAndCanBeReplayed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wrong := put(t, dir, "wrong.c", "memcpy(pool", "if (fresh != 3) memcpy(pool")
	right := put(t, dir, "right.c", "", "")
	saved := filepath.Join(dir, "first.trace")
	program := filepath.Join(dir, "first.c")
	status, out, said := run(t, "--trace", saved, "--main", program, "--only", "task4_copies", wrong)
	require.Equal(t, 1, status, said)
	require.Regexp(t, `append_kv copies the shared block wrongly: .*\n  handout:  .*copy exactly 64 bytes`, out)
	require.Contains(t, out, "\n  seen in:  task4_copies_once_for_each_sharer\n")
	require.Contains(t, out, "byte 192 of the pool (block 3, record 0)")
	require.Contains(t, out, "fork e0 1 3\n")
	text, err := os.ReadFile(saved)
	require.NoError(t, err)
	require.Contains(t, string(text), "append e0 1 1\n")
	inC, err := os.ReadFile(program)
	require.NoError(t, err)
	require.Contains(t, string(inC), "    append_kv(e[0], 1, 1);\n    int actual = ((unsigned char *)pool0)[192], expected = 0x14;\n")
	status, out, _ = run(t, "--replay", saved, wrong)
	require.Equal(t, 1, status)
	require.Contains(t, out, "byte 192 of the pool (block 3, record 0)")
	require.NotContains(t, out, "points")
	status, out, _ = run(t, "--json", "--replay", saved, right)
	require.Zero(t, status)
	require.NotContains(t, out, `"score"`)

	fresh := filepath.Join(dir, "fresh.c")
	for file, says := range map[string]string{program: "was not written; the file of that name is from before\n", fresh: fresh + " was not written\n"} {
		status, out, said = run(t, "--main", file, "--only", "task4_copies_once", right)
		require.Zero(t, status, said)
		require.Contains(t, out, "14.0 of 14 points")
		require.Contains(t, said, says)
	}
	require.NoFileExists(t, fresh)
	again, err := os.ReadFile(program)
	require.NoError(t, err)
	require.Equal(t, inC, again)

	require.NoError(t, os.WriteFile(saved, []byte("init e0 64\ngrow e0\n"), 0o644))
	status, _, said = run(t, "--replay", saved, right)
	require.Equal(t, 2, status)
	require.Contains(t, said, "line 2: \"grow\" is none of init, create")
}

// Ensure that each error says what is wrong. The error for a removed command or flag must say what to use instead.
func TestTroubleIsStatusTwo(t *testing.T) {
	level.SkipQuick(t)
	t.Parallel()
	for args, says := range map[string]string{
		"":               "which submission? Name a file",
		"/nonexistent.c": "no such file",
		t.TempDir():      "there is neither a .c file nor a student's folder in it",
		"--only nonsense " + corpus.Path("correct/llm_memory.c"): "no trace has that name",
		"--hmtl grades x.c":            "unknown flag: --hmtl; did you mean --html?",
		"completion csh":               `no shell "csh"; shells: bash, fish, powershell, zsh`,
		"similar --html grades class/": "similar was removed: run JPlag or MOSS on the folder of the class",
		"--exhaustive llm_memory.c":    "--exhaustive was removed: the directed and random traces decide the points",
	} {
		status, _, said := run(t, strings.Fields(args)...)
		require.Equal(t, 2, status, args)
		require.Regexp(t, "^llmgrade: .*"+regexp.QuoteMeta(says), said)
	}
	_, out, _ := run(t, "--help")
	require.NotContains(t, out, "similar")
}

func TestAMissingProgramIsNamedAtOnce(t *testing.T) {
	level.SkipQuick(t)
	t.Parallel()
	noValgrind := t.TempDir()
	for _, program := range []string{"gcc", "as", "ld", "objcopy", "objdump"} {
		path, err := exec.LookPath(program)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(noValgrind, program)))
	}
	file := corpus.Path("correct/llm_memory.c")
	for _, c := range []struct {
		name, path string
		args       []string
		says       string
	}{
		{"no compiler", "/nonexistent", []string{file}, "gcc is not installed, and grading needs it; on Debian and Ubuntu: apt install gcc valgrind"},
		{"no Valgrind", noValgrind, []string{"--html", filepath.Join(t.TempDir(), "grades"), file}, "valgrind is not installed"},
		{"traces by name need no Valgrind", noValgrind, []string{"--only", "nonsense", file}, "nonsense"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], c.args...)
			cmd.Env = append(os.Environ(), "BE_LLMGRADE=1", "PATH="+c.path)
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Equal(t, 2, cmd.ProcessState.ExitCode())
			require.Contains(t, string(out), c.says)
		})
	}
}
