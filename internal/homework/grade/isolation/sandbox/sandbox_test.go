package sandbox_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade/isolation/sandbox"
	"llmmemory/internal/testkit/level"
)

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
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    const char *what = argv[1];
    pid_t other = argc > 2 ? atoi(argv[2]) : 0;
    long n = -2;
    errno = 0;
    if (strcmp(what, "nothing") == 0) n = 0;
    if (strcmp(what, "wait") == 0) {
        write(1, "now\n", 4);
        n = read(0, &n, 1);
    }
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
    if (strcmp(what, "kill") == 0) n = kill(other, SIGKILL);
    if (strcmp(what, "tgkill") == 0) n = syscall(SYS_tgkill, other, other, SIGKILL);
    if (strcmp(what, "tkill") == 0) n = syscall(SYS_tkill, other, SIGKILL);
    if (strcmp(what, "limit another") == 0) n = prlimit(other, RLIMIT_CPU, &(struct rlimit){1, 1}, NULL);
    if (strcmp(what, "own a file's signals") == 0) n = fcntl(1, F_SETOWN, other);
    if (strcmp(what, "outlive") == 0) n = prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
    if (strcmp(what, "sleep") == 0) n = nanosleep(&(struct timespec){0, 1}, NULL);
    if (strcmp(what, "abort") == 0) abort();
    if (strcmp(what, "x32") == 0) n = syscall(0x40000000 + 39);
    puts(n >= 0 ? "did" : n == -1 ? strerror(errno) : "what?");
    return 0;
}
`

func compile(t *testing.T) string {
	t.Helper()
	level.SkipQuick(t)
	dir := t.TempDir()
	for folder := dir; len(folder) > len(os.TempDir()); folder = filepath.Dir(folder) {
		require.NoError(t, os.Chmod(folder, 0o755)) // another uid executes it
	}
	file, program := filepath.Join(dir, "prisoner.c"), filepath.Join(dir, "prisoner")
	require.NoError(t, os.WriteFile(file, []byte(prisoner), 0o644))
	out, err := exec.Command("gcc", "-static", "-w", file, "-o", program).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

func run(t *testing.T, path string, argv []string, err error) string {
	t.Helper()
	require.NoError(t, err)
	out, err := (&exec.Cmd{Path: path, Args: argv}).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

// neighbour starts another submission, which runs until the test ends. At the end it checks that this submission is
// still running.
func neighbour(t *testing.T, program string) (pid string) {
	t.Helper()
	path, argv, err := sandbox.Command(program, "wait")
	require.NoError(t, err)
	cmd := &exec.Cmd{Path: path, Args: argv}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ready := make([]byte, 4)
	_, err = io.ReadFull(out, ready)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		require.NoError(t, cmd.Wait(), "it was harmed")
	})
	return strconv.Itoa(cmd.Process.Pid)
}

const denied = "Operation not permitted"

func requireAllLayers(t *testing.T) {
	t.Helper()
	layers, err := sandbox.Active()
	require.NoError(t, err)
	if layers.Landlock == 0 || !layers.Seccomp {
		t.Skip("only ", layers)
	}
}

func TestWhatASubmissionCannotDo(t *testing.T) {
	requireAllLayers(t)
	program := compile(t)
	other := neighbour(t, program)
	box := sandbox.Box{Folder: t.TempDir(), Memory: 1 << 30}
	require.NoError(t, os.Chmod(box.Folder, 0o777))
	const noPermission = "Permission denied"
	for attempt, says := range map[string][2]string{ // alone and in a box
		"nothing": {"did", "did"}, "abort": {"signal: aborted", "signal: aborted"},
		"read": {denied, noPermission}, "read itself": {denied, "did"}, "write": {denied, noPermission}, "delete": {denied, noPermission},
		"fork": {denied, denied}, "vfork": {denied, denied}, "sleep": {denied, denied}, "network": {denied, denied},
		"trace": {denied, denied}, "x32": {denied, denied}, "memory": {"Cannot allocate memory", "Cannot allocate memory"},
		"kill": {denied, denied}, "tgkill": {denied, denied}, "tkill": {denied, denied}, "limit another": {denied, denied},
		"own a file's signals": {denied, denied}, "outlive": {denied, denied}, "signal": {denied, denied},
		"other program": {noPermission, noPermission},
	} {
		for i, command := range []func(string, ...string) (string, []string, error){sandbox.Command, box.Command} {
			path, argv, err := command(program, attempt, other)
			require.Equal(t, says[i], run(t, path, argv, err), "%s, %d", attempt, i)
		}
	}
	box.Read = []string{"/etc"}
	path, argv, err := box.Command(program, "read")
	require.Equal(t, "did", run(t, path, argv, err), "what it may read")
	require.NoFileExists(t, "/tmp/llmgrade-was-here")
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	requireAllLayers(t)
	program := compile(t)
	other := neighbour(t, program)
	for missing, c := range map[string]struct{ says, command, result string }{
		"l":  {"NO LANDLOCK", "write", denied},                            // seccomp
		"s":  {"NO SECCOMP", "read", "Permission denied"},                 // Landlock
		"ls": {"NO LANDLOCK", "fork", "Resource temporarily unavailable"}, // the limits
	} {
		sandbox.LeaveOut(t, missing)
		layers, err := sandbox.Active()
		require.NoError(t, err)
		require.Contains(t, layers.String(), c.says)
		path, argv, err := sandbox.Command(program, c.command)
		require.Equal(t, c.result, run(t, path, argv, err), missing)
		if missing == "l" { // which also keeps signals to itself
			for _, attempt := range []string{"kill", "tgkill", "tkill"} {
				for _, command := range []func(string, ...string) (string, []string, error){sandbox.Command, sandbox.Box{Folder: "/"}.Command} {
					path, argv, err := command(program, attempt, other)
					require.Equal(t, denied, run(t, path, argv, err), attempt)
				}
			}
		}
	}
	if os.Getuid() == 0 {
		sandbox.LeaveOut(t, "u")
		layers, err := sandbox.Active()
		require.NoError(t, err)
		require.Contains(t, layers.String(), "RUNS AS ROOT")
	}
}
