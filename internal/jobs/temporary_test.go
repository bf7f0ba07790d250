package jobs_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/jobs"
)

// making is the name of an environment variable. If it is set, the test binary is a child process that makes a
// folder and waits.
const making = "LLM_TEST_MAKES_A_FOLDER"

func start(t *testing.T) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestAFolderForAnotherProcess$")
	cmd.Env = append(os.Environ(), making+"=1")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	return cmd, strings.TrimSpace(line)
}

func TestAFolderForAnotherProcess(t *testing.T) {
	if os.Getenv(making) == "" {
		t.Skip("for the process that is killed")
	}
	folder, err := jobs.NewTemporary("mine-")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder.Path, "file"), nil, 0o600))
	fmt.Println(folder.Path)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is killed, or the test ends
}

// Ensure that NewTemporary removes the folders of killed processes, and not those of running processes or of other
// users.
func TestWhatAKilledProcessLeftIsRemoved(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	killed, left := start(t)
	_, used := start(t)
	require.DirExists(t, left, "the process that came after is no reason to remove it")
	require.NoError(t, killed.Process.Kill())
	_ = killed.Wait()
	require.FileExists(t, filepath.Join(left, "file"))

	put := func(name string, age time.Duration) string {
		dir := filepath.Join(os.TempDir(), name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Chtimes(dir, time.Time{}, time.Now().Add(-age)))
		return dir
	}
	unnamed, making, others := put(".mine-left", time.Hour), put(".mine-young", 0), put("others", time.Hour)
	somebodys := ""
	if os.Getuid() == 0 {
		somebodys = put("mine-somebodys", time.Hour)
		require.NoError(t, os.Chown(somebodys, 65534, 65534))
	}

	folder, err := jobs.NewTemporary("mine-")
	require.NoError(t, err)
	require.NoDirExists(t, left)
	require.NoDirExists(t, unnamed)
	require.DirExists(t, used, "its process lives")
	require.DirExists(t, making, "it may be one that is just being made")
	require.DirExists(t, others)
	if somebodys != "" {
		require.DirExists(t, somebodys)
	}
	require.True(t, strings.HasPrefix(filepath.Base(folder.Path), "mine-"))
	require.NoError(t, folder.Remove())
	require.NoDirExists(t, folder.Path)
}
