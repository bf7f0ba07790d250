package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/grade/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Launch()
	os.Exit(m.Run())
}

// prisoner tries one thing and prints "did" or why not.
const prisoner = `
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *what = argv[1];
    long n = -2;
    errno = 0;
    if (strcmp(what, "nothing") == 0) n = 0;
    if (strcmp(what, "read") == 0) n = open("/etc/passwd", O_RDONLY);
    if (strcmp(what, "read itself") == 0) n = open(argv[0], O_RDONLY);
    if (strcmp(what, "write") == 0) n = open("/tmp/llmgrade-was-here", O_CREAT | O_WRONLY, 0600);
    if (strcmp(what, "delete") == 0) n = unlink(argv[0]);
    if (strcmp(what, "fork") == 0) n = fork();
    if (strcmp(what, "vfork") == 0) n = syscall(58);
    if (strcmp(what, "signal") == 0) n = kill(getppid(), 0);
    if (strcmp(what, "network") == 0) n = socket(AF_INET, SOCK_STREAM, 0);
    if (strcmp(what, "trace") == 0) n = ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    if (strcmp(what, "other program") == 0) n = execl("/bin/true", "true", (char *)NULL);
    if (strcmp(what, "memory") == 0) n = mmap(NULL, 8L << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED ? -1 : 0;
    if (strcmp(what, "x32") == 0) n = syscall(0x40000000 + 39);
    puts(n >= 0 ? "did" : n == -1 ? strerror(errno) : "what?");
    return argc != 2;
}
`

func compile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for at := dir; len(at) > len(os.TempDir()); at = filepath.Dir(at) {
		require.NoError(t, os.Chmod(at, 0o755)) // another uid executes it
	}
	file, program := filepath.Join(dir, "prisoner.c"), filepath.Join(dir, "prisoner")
	require.NoError(t, os.WriteFile(file, []byte(prisoner), 0o644))
	out, err := exec.Command("gcc", "-static", file, "-o", program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

func try(t *testing.T, program, what string) string {
	t.Helper()
	path, argv, err := sandbox.Command(program, what)
	require.NoError(t, err)
	return run(path, argv)
}

func run(path string, argv []string) string {
	out, err := (&exec.Cmd{Path: path, Args: argv}).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

func TestWhatASubmissionCannotDo(t *testing.T) {
	if !strings.HasSuffix(sandbox.Layers(), ", seccomp") {
		t.Skip("only ", sandbox.Layers())
	}
	program := compile(t)
	require.Equal(t, "did", try(t, program, "nothing"))
	const denied = "Operation not permitted"
	for what, says := range map[string]string{
		"read": denied, "read itself": denied, "write": denied, "delete": denied, "fork": denied, "vfork": denied,
		"signal": denied, "network": denied, "trace": denied, "memory": "Cannot allocate memory", "x32": denied,
	} {
		require.Equal(t, says, try(t, program, what), what)
	}
	require.NotEqual(t, "did", try(t, program, "other program"))
	require.NoFileExists(t, "/tmp/llmgrade-was-here")
}

func TestWhatAWatchedSubmissionCannotDo(t *testing.T) {
	if layers := sandbox.Layers(); !strings.Contains(layers, "Landlock ABI") || !strings.HasSuffix(layers, ", seccomp") {
		t.Skip("only ", layers)
	}
	program := compile(t)
	folder := t.TempDir()
	require.NoError(t, os.Chmod(folder, 0o777))
	for what, says := range map[string]string{
		"nothing": "did", "read": "did", "read itself": "did",
		"write": "Permission denied", "delete": "Permission denied",
		"fork": "Operation not permitted", "vfork": "Operation not permitted", "network": "Operation not permitted",
		"trace": "Operation not permitted", "x32": "Operation not permitted",
	} {
		path, argv, err := sandbox.Watched(folder, program, what)
		require.NoError(t, err)
		require.Equal(t, says, run(path, argv), what)
	}
	require.NoFileExists(t, "/tmp/llmgrade-was-here")
}
