package hangs

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAProgramThatEndsIsWaitedFor(t *testing.T) {
	require.NoError(t, Run(exec.Command("true")))
	require.Error(t, Run(exec.Command("false")))
	require.NotErrorIs(t, Run(exec.Command("false")), Err)
	require.NoError(t, run(exec.Command("sh", "-c", "sleep 0.3"), time.Minute, time.Minute))
}

func TestAProgramThatHangsIsEnded(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"waits", "sleep 1000"},
		{"a child waits", "sleep 1000 & wait"},
		{"loops", "while :; do :; done"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("sh", "-c", c.script)
			require.ErrorIs(t, run(cmd, 400*time.Millisecond, 100*time.Millisecond), Err)
			require.Eventually(t, func() bool { return processorTime(cmd.Process.Pid) == 0 }, time.Minute, time.Millisecond,
				"a child runs, or was not reaped")
		})
	}
}
