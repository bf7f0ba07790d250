package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func init() { level.CollectLess() }

// TestMain runs llmsim's main instead of the tests if a test has started this binary to use it as llmsim.
func TestMain(m *testing.M) {
	if os.Getenv("BE_LLMSIM") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func llmsim(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	status = run(t.Context(), args, &out, &said)
	return status, out.String(), said.String()
}

func program(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "BE_LLMSIM=1")
	return cmd
}

func finish(t *testing.T, cmd *exec.Cmd) (status int, stdout, stderr string) {
	t.Helper()
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), said.String()
}
