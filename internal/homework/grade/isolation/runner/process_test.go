package runner_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/grade/isolation/build"
	"llmmemory/internal/homework/grade/isolation/cputime"
	"llmmemory/internal/homework/grade/isolation/runner"
	"llmmemory/internal/testkit/corpus"
	"llmmemory/internal/testkit/level"
)

var patient = runner.Patience{Call: time.Minute, Process: time.Minute}

func started(t *testing.T, kit *build.Kit, before string, patience runner.Patience) *runner.Process {
	t.Helper()
	const first = "    if (pool_addr == NULL ||"
	program, err := kit.Build("a test's", []byte(corpus.Changed(t, first, before+first)))
	require.NoError(t, err)
	p, err := runner.Start(program.Native(), patience)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// Ensure that a process makes the requested calls. Any other behaviour of the process must give a clear error.
func TestAProcessMakesCalls(t *testing.T) {
	level.SkipQuick(t)
	kit, err := build.NewKit()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kit.Close()) })
	init := runner.Request{Call: runner.Init, Engine: runner.Pools, Size: 640}

	t.Run("a call returns what it allocated", func(t *testing.T) {
		p := started(t, kit, "", patient)
		r, err := p.Do(init)
		require.NoError(t, err)
		require.NotZero(t, r.Returned)
		require.Equal(t, []runner.Event{
			{What: runner.Malloc, At: uint64(r.Returned), Size: 40},
			{What: runner.Calloc, At: uint64(r.Returned) + 64, Size: 40},
		}, r.Events)
		failing := init
		failing.Fail = 2
		r, err = p.Do(failing)
		require.NoError(t, err)
		require.Zero(t, r.Returned)
		require.Len(t, r.Events, 3) // the engine, refused, the engine given back
		require.Equal(t, runner.Refused, r.Events[1].What)
		for _, c := range []struct {
			address, size uint64
			accessible    bool
		}{
			{runner.Pools, 1, true}, {runner.Pools - 1, 1, false}, {0, 0, false},
			{runner.Pools + runner.PoolsSize - 1, 1, true}, {runner.Pools + runner.PoolsSize - 1, 2, false},
			{runner.Heap, runner.HeapSize, true}, {runner.Heap, runner.HeapSize + 1, false}, {runner.Heap - 1, 2, false},
			{runner.Heap + runner.HeapSize, 1, false}, {runner.Heap + 8, ^uint64(0), false}, {^uint64(0), 2, false},
		} {
			require.Equal(t, c.accessible, p.At(c.address, c.size) != nil, "%#x, %d bytes", c.address, c.size)
		}
	})
	t.Run("all calls together are limited", func(t *testing.T) {
		const slow = "    for (volatile int i = 0; i < 20000000; i++) {\n    }\n" // some tens of milliseconds
		p := started(t, kit, slow, runner.Patience{Call: time.Minute, Process: time.Second / 2})
		var err error
		for err == nil {
			_, err = p.Do(init)
		}
		require.ErrorIs(t, err, cputime.ErrTime)
		require.ErrorContains(t, err, "all calls together took")
	})
	t.Run("what is written to the grader's pipe is an attack", func(t *testing.T) {
		const noise = "    extern long write(int, const void *, unsigned long);\n    for (int fd = 0; fd < 16; fd++) {\n        (void)!write(fd, \"twenty bytes of noise\", 20);\n    }\n"
		_, err := started(t, kit, noise, patient).Do(init)
		require.ErrorIs(t, err, runner.ErrAttack)
		require.ErrorContains(t, err, "it writes to the pipe")
	})
}

func TestWhatDoesNotFitDoesNotStart(t *testing.T) {
	level.SkipQuick(t)
	dir, err := os.MkdirTemp("", "llmgrade-test-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o711))
	path := filepath.Join(dir, "large")
	require.NoError(t, os.WriteFile(path+".c", []byte("static volatile char much[1 << 30];\nint main(void) {\n    return much[5];\n}\n"), 0o644))
	out, err := exec.Command("gcc", "-static", path+".c", "-o", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
	_, err = runner.Start(path, patient)
	require.ErrorIs(t, err, runner.ErrStart)
}
