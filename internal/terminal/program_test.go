package terminal

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestAProgramSaysItsVersionAndTheFlagThatWasMeant(t *testing.T) {
	defer func(before string) { version = before }(version)
	version = "1.2.3+abc"
	c := &cobra.Command{Use: "program", Run: func(*cobra.Command, []string) {}, SilenceErrors: true, SilenceUsage: true}
	c.Flags().Int("port", 0, "where it listens")
	Program(c)
	var out strings.Builder
	c.SetOut(&out)
	c.SetArgs([]string{"--version"})
	require.NoError(t, c.Execute())
	require.Equal(t, "program version 1.2.3+abc\n", out.String())
	c.SetArgs([]string{"--version=false", "--prot", "5"})
	require.ErrorContains(t, c.Execute(), "did you mean --port?")
	version = ""
	require.NotEmpty(t, Version())
}

// Ensure that make links the version into every program.
func TestMakeWritesTheVersion(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	require.Contains(t, string(text), "-X=llmmemory/internal/terminal.version=$$(.ci/version $(VERSION))")
	for _, program := range []string{"llmsim", "llmserve"} {
		require.Regexp(t, `build .*-ldflags="\$\(STAMP\)" -o \$\(B\)/`+program+" ", string(text))
	}
}

// Ensure that the version contains the commit in a git checkout. A source archive has a version without a
// commit, even if git is missing or the archive lies inside another repository.
func TestTheVersionOfASourceFolder(t *testing.T) {
	script, err := filepath.Abs("../../.ci/version")
	require.NoError(t, err)
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("git is not installed")
	}
	repository := t.TempDir()
	run := func(args ...string) string {
		cmd := exec.Command(git, append([]string{"-C", repository, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	file := filepath.Join(repository, "file")
	require.NoError(t, os.WriteFile(file, []byte("a"), 0o644))
	run("init", "-q")
	run("add", "file")
	run("commit", "-q", "-m", "first")
	run("tag", "other")
	commit := run("rev-parse", "--short=12", "HEAD")
	inside := filepath.Join(repository, "archive")
	require.NoError(t, os.Mkdir(inside, 0o755))
	said := func(dir, path string) string {
		cmd := exec.Command(script, "1.0.0")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+path)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	path := os.Getenv("PATH")
	require.Equal(t, "1.0.0+"+commit+"\n", said(repository, path))
	require.Equal(t, "1.0.0\n", said(inside, path), "no repository of its own")
	require.Equal(t, "1.0.0\n", said(repository, "/nonexistent"), "no git")
	require.NoError(t, os.WriteFile(file, []byte("b"), 0o644))
	require.Equal(t, "1.0.0+"+commit+"-dirty\n", said(repository, path))
}
