package guest_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/hangs"
)

type result struct {
	status int // exit status; 128 + n for signal n
	stdout string
	stderr string
}

// run runs a command in dir with a clean environment and the variables in env, and returns how it ended. If the
// command does not end, the test fails.
func run(t *testing.T, dir string, env []string, command ...string) result {
	t.Helper()
	noteInputs()
	note(command)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(cleanEnv(t), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := hangs.Run(cmd)
	require.NotErrorIsf(t, err, hangs.Err, "%s\n%s%s", strings.Join(command, " "), stdout.String(), stderr.String())
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		require.NoError(t, err)
	}
	status := cmd.ProcessState.ExitCode()
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		status = 128 + int(ws.Signal())
	}
	return result{status, stdout.String(), stderr.String()}
}

func succeed(t *testing.T, dir string, env []string, command ...string) result {
	t.Helper()
	r := run(t, dir, env, command...)
	require.Zerof(t, r.status, "%s\n%s%s", strings.Join(command, " "), r.stdout, r.stderr)
	return r
}

// cleanEnv returns an environment without options for Valgrind, gdb or the Go runtime, and with a home directory that
// has no rc files of these programs.
func cleanEnv(t *testing.T) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C"}
}

// runMake calls make in the repository. Unlike run, it passes the environment of the test on, because make may have to
// build.
func runMake(t *testing.T, args ...string) result {
	t.Helper()
	noteInputs()
	cmd := exec.Command("make", append([]string{"-s"}, args...)...)
	cmd.Dir = root
	cmd.Env = makeEnv()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// need skips the test if a tool is missing. On CI, where .ci/tools installs all tools, it fails the test instead.
func need(t *testing.T, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		if os.Getenv("CI") != "" {
			require.NoError(t, err)
		}
		runs.Lock()
		runs.skipped = true
		runs.Unlock()
		t.Skipf("%s is not installed: .ci/tools says how", tool)
	}
}
